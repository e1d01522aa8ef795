"""What a page says of a job that is under way."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from encrypted_records.client.proxy.jobs import Job
from encrypted_records.proxy.pages.jobs import JobView

JOB = Job(
    status="processing",
    processed=0,
    total=200,
    current_batch=1,
    total_batches=20,
    job_id="",
    work="store",
    file=None,
    schemas=[],
    size=10,
    bad_rows=0,
    replaced=0,
    rounded={},
    packs=0,
    packed=0,
    waits=None,
    created=0.0,
    received=1.0,
    checked=None,
    finished=None,
    undone=None,
)


def view(**about: Any) -> JobView:
    return JobView(msgspec.structs.replace(JOB, **about), {})


@pytest.mark.parametrize(
    ("about", "word"),
    [
        ({"current_batch": 0}, "checking"),
        ({"processed": 100}, "storing"),
        ({"processed": 200}, "storing"),
        ({"processed": 100, "packs": 2, "packed": 1}, "storing"),
        ({"processed": 200, "packs": 2, "packed": 1}, "packing"),
        ({"processed": 200, "packs": 2, "packed": 2}, "storing"),
    ],
)
def test_a_large_job_is_packed_when_all_of_it_is_stored(about: dict[str, Any], word: str) -> None:
    found = view(**about)
    assert found.word == word
    assert found.live


def test_its_bar_has_a_part_for_packing_where_it_is_packed() -> None:
    assert [phase.name for phase in view().phases] == ["uploaded", "checked", "stored"]
    last = view(processed=150, packs=4, packed=1).phases[-1]
    assert (last.name, last.share, last.figures) == ("packed", 0.25, "1 of 4")


def test_it_says_why_it_waits() -> None:
    assert view().waits == ""
    assert view(waits="the disk is full").waits == "the disk is full"
