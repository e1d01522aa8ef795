"""What a file is, its first bytes tell: nobody sends the rest of what cannot be stored."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from encrypted_records.model.ids import new_id, to_text
from tests.proxy.tus.client import BYTES, FILES, Client, encoded
from tests.proxy.tus.test_checksum import checksum
from tests.proxy.tus.test_jobs import DEFINITION, csv, names
from tests.support.store import Store, new_schema

#: What the file is said to have.
SIZE = 50_000_000


@pytest.fixture(scope="module")
def store(tus: Client) -> Store:
    assert tus.account is not None
    return Store(tus.service, tus.account, new_schema(tus.service, tus.account, DEFINITION))


def nothing_known() -> str:
    return f"name,age,schema_id:{to_text(new_id())}\nAda,3\n"


UNFIT = {
    "neither by name nor by type": ("x.bin", "name\n", "file_type"),
    "an archive": ("x.csv", "PK\x03\x04.....", "file_type"),
    "no schema": ("x.csv", "a;b;c\n1;2;3\n", "csv_header"),
    "an unknown schema": ("x.csv", nothing_known(), "csv_header"),
    "an unknown column": ("x.csv", "name,shoe,schema_id:{id}\n", "csv_header"),
    "no JSON": ("x.json", "name,age\n", "file_type"),
}


@pytest.mark.parametrize("why", UNFIT)
def test_a_file_that_cannot_be_stored_is_refused_with_its_first_bytes(
    tus: Client, store: Store, why: str
) -> None:
    filename, start, code = UNFIT[why]
    upload = tus.create(SIZE, Upload_Metadata=encoded(filename=filename))
    answer = tus.patch(upload, 0, start.replace("{id}", store.schema_id).encode())
    assert (answer.status, answer.json()["code"]) == (400, code)
    failed = tus.job(upload)
    assert failed["status"] == "failed"
    assert code in failed["error"]
    assert tus.head(upload).status == 410


def test_it_is_refused_in_the_middle_of_the_request_that_brings_all_of_it(tus: Client) -> None:
    """As clients send a file that do not divide it."""
    upload = tus.create(SIZE, Upload_Metadata=encoded(filename="x.csv"))
    sending = tus.begin(upload, 0, SIZE)
    sending.send(nothing_known().encode())
    assert sending.answer().status == 400
    sending.break_off()
    assert tus.job(upload)["status"] == "failed"


def test_a_header_may_come_in_any_pieces(tus: Client, store: Store) -> None:
    mine = store.another_schema(DEFINITION)
    data = csv(mine, "Ada,3")
    upload = tus.create(len(data), Upload_Metadata=encoded(filename="x.csv"))
    for at in range(len(data)):
        assert tus.patch(upload, at, data[at : at + 1]).status == 204
    assert tus.ended(upload)["status"] == "completed"
    assert names(mine) == ["Ada"]


def test_a_wrong_header_in_pieces_is_refused_with_its_last_piece(tus: Client) -> None:
    data = nothing_known().encode()
    upload = tus.create(SIZE, Upload_Metadata=encoded(filename="x.csv"))
    end = data.index(b"\n") + 1
    for first, last in itertools.pairwise((0, 1, 20, end - 1)):
        assert tus.patch(upload, first, data[first:last]).status == 204
    assert tus.patch(upload, end - 1, data[end - 1 :]).json()["code"] == "csv_header"


def test_bytes_that_do_not_match_their_checksum_are_not_judged(tus: Client, store: Store) -> None:
    """A bit that fell over on the way must not end the upload."""
    mine = store.another_schema(DEFINITION)
    data = csv(mine, "Ada,3")
    upload = tus.create(len(data), Upload_Metadata=encoded(filename="x.csv"))
    spoilt = b"X" + data[1:]
    right = checksum("sha256", data)
    assert tus.patch(upload, 0, spoilt, Upload_Checksum=right).status == 460
    assert tus.patch(upload, 0, data, Upload_Checksum=right).status == 204
    assert tus.ended(upload)["status"] == "completed"


def test_bytes_that_match_their_checksum_are_judged(tus: Client) -> None:
    data = nothing_known().encode()
    upload = tus.create(SIZE, Upload_Metadata=encoded(filename="x.csv"))
    answer = tus.patch(upload, 0, data, Upload_Checksum=checksum("sha256", data))
    assert answer.json()["code"] == "csv_header"
    assert tus.job(upload)["status"] == "failed"


def test_bytes_in_the_creation_are_judged_and_then_there_is_no_upload(tus: Client) -> None:
    sent = {"Upload-Length": str(SIZE), "Upload-Metadata": encoded(filename="x.csv")}
    answer = tus.send("POST", FILES, BYTES | sent, nothing_known().encode())
    assert answer.json()["code"] == "csv_header"
    assert "Location" not in answer.headers


def test_a_megabyte_of_nonsense_is_no_header(tus: Client) -> None:
    def without_end() -> Iterator[bytes]:
        yield from itertools.repeat(b'"' + b"x" * 99_999, 40)

    upload = tus.create(SIZE, Upload_Metadata=encoded(filename="x.csv"))
    answer = tus.patch(upload, 0, without_end())
    assert answer.json()["code"] == "csv_header"


def test_a_conflict_names_the_offset_that_there_is(tus: Client) -> None:
    upload = tus.create(5)
    tus.patch(upload, 0, b"he")
    answer = tus.patch(upload, 0, b"hello")
    assert answer.status == 409
    assert answer.headers["Upload-Offset"] == "2"
