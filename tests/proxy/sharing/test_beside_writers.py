"""Beside writers on PostgreSQL: a removed writer goes on writing, and records go by their age.

The scenarios removal and retention hold this over SQLite, one request at a time; threads and
transactions of the API are real here.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from encrypted_records.model import roster as form
from tests.proxy.sharing.shared import Shared, numbers
from tests.simulation.scenarios.removal import OUT
from tests.support.service import ANSWER_SECONDS, Answer
from tests.support.store import Store

pytestmark = pytest.mark.parametrize("api", ["postgresql"], indirect=True)

#: Answers after which a writer may repeat: others were first.
OVERTAKEN = {"roster_moved", "key_mismatch", "log_conflict", "writer_conflict", "log_moved"}
#: How much each writer has stored before the change begins, and behind it.
BEFORE, BEHIND = 3, 3
#: Where the numbers of each writer begin.
EACH = 1000
#: What a proxy says of a commit that was stored and cannot be read back, as its caller is out.
ACCEPTED = "the API accepted the change"
#: Days after which records go.
DAYS = 30
KEPT: dict[str, Any] = {
    "type": "object",
    "formats": "enforced",
    "retention": {"days": DAYS, "field": "seen"},
    "properties": {
        "n": {"type": "integer", "minimum": 0, "maximum": 9999},
        "seen": {"type": "string", "format": "date"},
    },
}


class Writing:
    """Somebody who stores one record after another, in a thread, until told to end."""

    def __init__(self, store: Store, first: int, row: Callable[[int], dict[str, Any]]) -> None:
        self.stored: list[int] = []
        #: those that the API took before it told this writer nothing more of the log
        self.unproven: list[int] = []
        self.refused: list[str] = []
        self._store, self._first, self._row = store, first, row
        self._over = threading.Event()
        #: notified of each answer, and of the end
        self._answered = threading.Condition()
        self._failure: BaseException | None = None

    def run(self) -> None:
        try:
            for n in itertools.count(self._first):
                if self._over.is_set():
                    return
                self._keep(n, self._store.send([self._row(n)]))
        except BaseException as error:
            self._failure = error
            raise
        finally:
            with self._answered:
                self._answered.notify_all()

    def _keep(self, n: int, answer: Answer) -> None:
        with self._answered:
            if answer.status == 201:
                self.stored.append(n)
            elif answer.status == 502 and ACCEPTED in answer.json()["detail"]:
                self.unproven.append(n)
            else:
                self.refused.append(_code(answer))
            self._answered.notify_all()

    def _count(self) -> int:
        return len(self.stored) + len(self.unproven) + len(self.refused)

    def wait_for_more(self, count: int) -> None:
        """Wait for so many more answers; what the thread raised is raised here, too."""
        with self._answered:
            wanted = self._count() + count
            came = self._answered.wait_for(
                lambda: self._failure is not None or self._count() >= wanted, ANSWER_SECONDS
            )
        if self._failure is not None:
            raise self._failure
        assert came, f"no answer to a writer within {ANSWER_SECONDS:g} seconds"

    def end(self) -> None:
        self._over.set()


def _code(answer: Answer) -> str:
    assert 400 <= answer.status < 500, (answer.status, answer.body)
    return str(answer.json()["code"])


@contextmanager
def writing(*writers: Writing) -> Iterator[None]:
    with ThreadPoolExecutor(len(writers)) as pool:
        working = [pool.submit(writer.run) for writer in writers]
        try:
            for writer in writers:
                writer.wait_for_more(BEFORE)
            yield
            for writer in writers:
                writer.wait_for_more(BEHIND)
        finally:
            for writer in writers:
                writer.end()
        for work in working:
            work.result(60)


def test_nothing_of_a_removed_writer_who_goes_on_is_stored_and_nothing_of_before_is_lost(
    shared: Shared,
) -> None:
    ada = shared.proxy(shared.team.ada)
    ada.ingest([{"n": 0}])
    goes, stays = shared.person(form.WRITER), shared.person(form.WRITER)
    out = Writing(shared.proxy(goes), EACH, lambda n: {"n": n, "s": f"row {n}"})
    others = [
        Writing(store, (at + 2) * EACH, lambda n: {"n": n, "s": f"row {n}"})
        for at, store in enumerate((ada, shared.proxy(stays)))
    ]
    with writing(out, *others):
        removed = shared.put_out(ada, goes)
        assert removed.status == 200, removed.body
        # One that was on its way may have come before the removal.
        out.wait_for_more(1)
        before = [*out.stored, *out.unproven]
    assert [*out.stored, *out.unproven] == before, "stored behind the removal"
    assert len(out.unproven) <= 1
    assert not any(writer.unproven for writer in others)
    assert out.refused and set(out.refused) <= OUT | OVERTAKEN
    assert all(set(writer.refused) <= OVERTAKEN for writer in others)
    wanted = sorted([0, *before, *others[0].stored, *others[1].stored])
    assert len(out.stored) >= BEFORE and all(writer.stored for writer in others)
    # And a proxy that has seen nothing of it reads the log from its beginning.
    for store in (ada, shared.proxy(stays), shared.proxy(shared.team.ada)):
        assert numbers(store) == wanted


def test_just_what_is_too_old_goes_while_others_write(shared: Shared) -> None:
    now = datetime.now(UTC)

    def seen(n: int) -> str:
        """Far from the edge, whatever midnight does: each third is too old."""
        days = (5, 400, -5)[n % 3]
        return (now - timedelta(days=days)).strftime("%Y-%m-%d")

    def row(n: int) -> dict[str, Any]:
        return {"n": n, "seen": seen(n)}

    schema = shared.new_schema("Kept", KEPT)
    ada = replace(shared.proxy(shared.team.ada), schema=schema)
    early = ada.ingest([row(n) for n in range(30)])
    grace = replace(shared.proxy(shared.person(form.WRITER)), schema=schema)
    writers = [Writing(store, (at + 1) * EACH, row) for at, store in enumerate((ada, grace))]
    told: list[int] = []
    with writing(*writers):
        # A record that gets a young date stays, and one that gets an old date goes.
        assert _changed(grace, early[1], {"n": 1, "seen": seen(0)}).status == 200
        assert _changed(grace, early[0], {"n": 0, "seen": seen(1)}).status == 200
        for store in (ada, grace, ada):
            answer = store.proxy("POST", f"{schema}retention/")
            assert answer.status == 200 or _code(answer) in OVERTAKEN, answer.body
            told += [answer.json()["deleted"]] if answer.status == 200 else []
    last = ada.proxy("POST", f"{schema}retention/")
    assert last.status == 200, last.body
    told.append(last.json()["deleted"])
    assert all(set(writer.refused) <= OVERTAKEN for writer in writers)
    assert not any(writer.unproven for writer in writers)
    every = {*range(30), *writers[0].stored, *writers[1].stored}
    due = {n for n in every if n % 3 == 1} - {1} | {0}
    assert sum(told) == len(due)
    for store in (ada, grace, replace(shared.proxy(shared.team.ada), schema=schema)):
        assert numbers(store) == sorted(every - due)


def _changed(store: Store, record: str, data: dict[str, Any]) -> Answer:
    """The answer to a change, which is asked for again where others were first."""
    while True:
        answer = store.proxy("PATCH", f"/api/records/{record}/", {"data": data})
        if answer.status < 400 or _code(answer) not in OVERTAKEN:
            return answer
