"""``ers record delete --erase`` and ``ers subject erase``: the cost first, a receipt at the end."""

from __future__ import annotations

import json
import secrets

import pytest
from msgspec.structs import replace

from encrypted_records.cli.commands.erasure import say_erased
from encrypted_records.client.proxy.erasure import ErasedData
from tests.cli.command import Ers
from tests.support.erasures import UNDONE

DEFINITION = {
    "type": "object",
    "properties": {
        "email": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
    },
}
ADA = "ada@example.org"


@pytest.fixture
def people(ers: Ers) -> str:
    """The slug of a dataset and of its schema, with three records."""
    slug = f"people-{secrets.token_hex(4)}"
    ers.done("dataset", "create", "--name", slug, "--slug", slug)
    ers.done(
        *("schema", "create", "--dataset", slug, "--name", slug, "--slug", slug, "--file", "-"),
        typed=json.dumps(DEFINITION),
    )
    records = [{"email": ADA, "age": 1}, {"email": ADA, "age": 2}, {"email": "b@x.org", "age": 3}]
    ers.done("record", "create", "--schema", slug, "--file", "-", typed=json.dumps(records))
    return slug


def stored(ers: Ers, schema: str) -> list[str]:
    return [line["id"] for line in ers.done("record", "list", "--schema", schema).lines]


def test_erasing_a_record_says_the_cost_first_and_at_the_end_that_it_is_gone(
    ers: Ers, people: str
) -> None:
    first, *rest = stored(ers, people)
    said = ers.done("record", "delete", first, "--erase", "--yes")
    shown = said.out + said.err
    cost = shown.index("Erasing rewrites 1 segment of the index, with 3 rows in all.")
    assert cost < shown.index("Deleted 1 record.") < shown.index("Erased, up to version")
    assert stored(ers, people) == rest
    said = ers.done(
        *("record", "delete", "--schema", people, "--matching", "age = 3", "--erase", "--yes")
    )
    assert "Erased, up to version" in said.out + said.err
    assert len(stored(ers, people)) == 1


def test_a_person_is_counted_then_erased_and_the_receipt_has_no_value(
    ers: Ers, people: str
) -> None:
    erase = ("subject", "erase", "--dataset", people)
    for count in ("0", "1"):
        refused = ers(*erase, f"email={ADA}", "--confirm", count, "--yes")
        assert (refused.code, "matches 2 records in 1 schema\n" in refused.err) == (4, True)
        assert "No record matches" not in refused.out + refused.err
        assert "give it with --confirm" in refused.err
        assert "?confirm" not in refused.err
    assert len(stored(ers, people)) == 3
    receipt = ers.done(*erase, f"email={ADA}", "--confirm", "2", "--yes")
    assert (receipt.one["records"], receipt.one["gone"]) == (2, True)
    assert ADA not in receipt.out + receipt.err
    assert len(stored(ers, people)) == 1
    shown = ers.done(*erase, "age=3", "--confirm", "1", "--yes", "--output", "table")
    assert "1 record deleted" in shown.out + shown.err
    assert stored(ers, people) == []
    nobody = ers.done(*erase, f"email={ADA}")
    assert "No record matches" in nobody.out + nobody.err


@pytest.mark.parametrize("wrong", [("email",), ("email=x", "--yes"), ("colour=red",), ("age=old",)])
def test_what_names_nobody_is_refused(ers: Ers, people: str, wrong: tuple[str, ...]) -> None:
    assert ers("subject", "erase", "--dataset", people, *wrong).code != 0
    assert len(stored(ers, people)) == 3


def test_the_doctor_says_what_is_not_erased_yet(ers: Ers, people: str) -> None:
    first, *_ = stored(ers, people)
    ers.done("record", "delete", first, "--yes")
    found = {line["check"]: line for line in ers.done("doctor", "--schema", people).lines}
    check = found[f"erasure {people}"]
    assert check["state"] == "ok"
    assert check["found"] == "1 deleted row, not erased yet"


@pytest.mark.parametrize(("segments", "what"), [(0, "objects, or copies of them."), (1, "0 rows.")])
def test_where_only_copies_are_left_the_receipt_says_so(
    capsys: pytest.CaptureFixture[str], segments: int, what: str
) -> None:
    left = replace(UNDONE.left, segments=segments)
    erased = replace(UNDONE, schema="people", left=left)
    say_erased(ErasedData(gone=False, schemas=[erased]))
    said = capsys.readouterr()
    assert f"Not erased yet in people: {what}" in said.out + said.err
