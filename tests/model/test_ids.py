"""Identifiers are 22 characters that sort by time; references lead where they say."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.errors import BadInput, Malformed
from encrypted_records.model import ids

SOME = bytes.fromhex("0190a0000000700080000000000000a1")


@given(st.binary(min_size=16, max_size=16))
def test_an_identifier_survives_its_text(identifier: bytes) -> None:
    text = ids.to_text(identifier)
    assert len(text) == ids.ID_LENGTH
    assert ids.from_text(text) == identifier


@given(st.lists(st.binary(min_size=16, max_size=16), min_size=2))
def test_texts_sort_as_the_bytes_do(identifiers: list[bytes]) -> None:
    assert sorted(map(ids.to_text, identifiers)) == list(map(ids.to_text, sorted(identifiers)))


def test_later_identifiers_sort_after_earlier_ones() -> None:
    made = [ids.new_id() for _ in range(2000)]
    assert made == sorted(made)
    assert len(set(made)) == 2000
    assert {identifier[6] >> 4 for identifier in made} == {7}


def test_ids_of_records_are_of_their_moment_and_tell_nothing_of_each_other() -> None:
    before = ids.milliseconds(ids.new_id())
    made = ids.new_record_ids(2000)
    assert before <= ids.milliseconds(made[0]) <= ids.milliseconds(ids.new_id())
    assert {one[:6] for one in made} == {made[0][:6]}
    assert {(len(one), one[6] >> 4, one[8] >> 6) for one in made} == {(16, 7, 2)}
    assert len(set(made)) == 2000 and made != sorted(made)
    # Each of the other bits is drawn for itself.
    drawn = [int.from_bytes(one) for one in made]
    fixed = {*range(76, 128), 62, 63}
    for bit in set(range(128)) - fixed:
        assert 700 < sum(one >> bit & 1 for one in drawn) < 1300
    assert ids.new_record_ids(0) == []


@pytest.mark.parametrize(
    "text",
    ["", "2" * 21, "2" * 23, "2" * 21 + "0", "2" * 21 + "\n", "2" * 22 + "\n", "z" * 22, "é" * 22],
    ids=repr,
)
def test_what_is_no_identifier_is_malformed(text: str) -> None:
    with pytest.raises(Malformed) as caught:
        ids.from_text(text)
    assert caught.value.reason == "malformed_id"


@given(st.text(max_size=30))
def test_any_text_is_an_identifier_or_malformed(text: str) -> None:
    with contextlib.suppress(Malformed):
        assert ids.to_text(ids.from_text(text)) == text


def test_a_reference_names_its_collection() -> None:
    path = ids.reference("schemas", SOME)
    assert path == f"/api/schemas/{ids.to_text(SOME)}/"
    assert ids.reference("schemas", ids.to_text(SOME)) == path
    assert ids.from_reference(path, "schemas", pointer="/schema") == SOME


def test_a_bare_identifier_is_a_reference() -> None:
    assert ids.from_reference(ids.to_text(SOME), "schemas", pointer="/schema") == SOME


def test_an_absolute_url_of_our_own_host_is_a_reference() -> None:
    url = "http://127.0.0.1:8080" + ids.reference("schemas", SOME)
    own = ("https://other.example", "http://127.0.0.1:8080")
    assert ids.from_reference(url, "schemas", pointer="", own_hosts=own) == SOME
    for elsewhere in ("http://127.0.0.1:80809", "http://127.0.0.1", "http://evil.example"):
        with pytest.raises(BadInput):
            ids.from_reference(
                elsewhere + ids.reference("schemas", SOME), "schemas", pointer="", own_hosts=own
            )


PATH = ids.reference("schemas", SOME)


@pytest.mark.parametrize(
    "path",
    [
        None,
        1,
        "",
        ids.to_text(SOME)[:-1],
        PATH[:-1],
        PATH + "/",
        PATH + "\n",
        PATH.upper(),
        "/api/schemas/short/",
        ids.reference("datasets", SOME),
        f"//api/schemas/{ids.to_text(SOME)}/",
    ],
    ids=repr,
)
def test_what_leads_elsewhere_is_refused_with_its_pointer(path: object) -> None:
    with pytest.raises(BadInput) as caught:
        ids.from_reference(path, "schemas", pointer="/0/schema")
    (flaw,) = caught.value.flaws
    assert (flaw.code, flaw.pointer) == ("invalid_reference", "/0/schema")
