"""Somebody is put out and keys change twice, while fifty store, change and delete, and segments and
groups are merged: what was acknowledged is there once, and nothing else is."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from encrypted_records.index.segments.crowds import Sizes
from encrypted_records.index.segments.merge import Tier
from encrypted_records.model import roster as form
from encrypted_records.model import wire
from encrypted_records.model.records import Commit, CommitBody, LogEntry, ManifestDelta
from encrypted_records.proxy.process.background import Background
from tests.proxy.lies import each, on
from tests.proxy.sharing.people import Person, Team
from tests.proxy.sharing.shared import Shared, refused
from tests.support.eventually import eventually
from tests.support.front import Asked, Reply
from tests.support.service import Answer, Service, call
from tests.support.store import Store

#: Small enough that merges, and groups made of many, happen all the time.
OFTEN: dict[str, Any] = {
    "tiers": (Tier(16, 3), Tier(64, 2)),
    "crowds": Sizes(few=3, small=(64,), rows=64, groups=64),
}
WRITERS = 50
#: Records that are stored at most until groups were made of many, and seconds between them.
MORE, PAUSE = 400, 0.2
#: The status of an answer that does not say whether the change is there.
NOT_KNOWN = 502
#: Answers after which a writer may repeat: others were first.
OVERTAKEN = {
    *("roster_moved", "key_mismatch", "log_conflict", "writer_conflict", "log_moved"),
    *("record_changed", "stale_definition"),
}
#: What somebody meets who was put out.
OUT = {
    *("not_found", "not_admitted", "not_shared", "not_writer", "schema_deleted"),
    "unknown_reference",
}


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def api(request: pytest.FixtureRequest, services: Callable[[str], Service]) -> Service:
    return services(request.param)


def reason(answer: Answer) -> str:
    """The code of a refusal; where each record of an ingest has one, that one."""
    problem = answer.json()
    if problem["code"] != "invalid_records":
        return str(problem["code"])
    (code,) = {str(one["code"]) for one in problem["errors"]}
    return code


@dataclass
class Told:
    """What was acknowledged: each record's value by its id; and how often what was refused."""

    values: dict[str, int] = field(default_factory=dict)
    #: what the API may have taken of somebody who cannot look any more: the values before and after
    unproven: list[tuple[list[int], list[int]]] = field(default_factory=list)
    said: Counter[tuple[bool, int, str]] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, answer: Answer, before: list[int], after: list[int], *, put_out: bool) -> bool:
        """Whether it was acknowledged; a refusal has to have a name that says what to do.

        Args:
            before: what the records held that it is about.
            after: what they hold if it is done.
        """
        code = "" if answer.status < 300 else reason(answer)
        with self._lock:
            self.said[put_out, answer.status, code] += 1
            if answer.status == NOT_KNOWN:
                self.unproven.append((before, after))
        assert not code or code in OVERTAKEN | (OUT if put_out else set()), answer.body
        if answer.status == NOT_KNOWN:
            # The API took it, or may have, and who was put out meanwhile cannot read the log that
            # proves it.
            assert put_out
            said = answer.json()["detail"]
            assert "could not be proven" in said or "is not known" in said, answer.body
        return not code

    def agrees(self, held: dict[str, int]) -> bool:
        """Whether this is what was acknowledged, and of what is not known each whole or none."""
        expected = Counter(self.values.values())
        found = Counter(held.values())
        for before, after in self.unproven:
            if found & Counter(after) == Counter(after) and not set(before) & set(found):
                expected = expected - Counter(before) + Counter(after)
        known = {one: n for one, n in self.values.items() if n not in self._unsure()}
        return found == expected and known.items() <= held.items()

    def compare(self, held: dict[str, int]) -> str:
        """What differs, for who reads that it does."""
        found, expected = Counter(held.values()), Counter(self.values.values())
        more, less = sorted((found - expected).elements()), sorted((expected - found).elements())
        return f"more: {more}, less: {less}, unproven: {self.unproven}, said: {dict(self.said)}"

    def _unsure(self) -> set[int]:
        return {n for before, _ in self.unproven for n in before}

    def acknowledged(self, *, put_out: bool) -> int:
        with self._lock:
            return sum(n for (out, _, code), n in self.said.items() if out is put_out and not code)


@dataclass
class Scene:
    shared: Shared
    ada: Store
    grace: Store
    eve: Store
    eves: Person
    told: Told = field(default_factory=Told)
    #: that eve is being put out, and that it is done
    begun: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)

    def write(self, at: int) -> None:
        """Store three records, change one of them and delete another."""
        store, put_out = (self.ada, self.grace, self.eve)[at % 3], at % 3 == 2
        rows = [{"n": 10 * at + 1}, {"n": 10 * at + 2}, {"n": 10 * at + 3}]
        # A third of all begin when the removal does, and a third when it is done.
        if at >= WRITERS // 3:
            (self.begun if at < 2 * WRITERS // 3 else self.done).wait(60)
        answer = store.send(rows)
        numbers = [row["n"] for row in rows]
        if not self.told.note(answer, [], numbers, put_out=put_out):
            return
        made = [one["id"] for one in answer.json()]
        self.told.values |= {one: row["n"] for one, row in zip(made, rows, strict=True)}
        changed = store.proxy("PATCH", f"/api/records/{made[0]}/", {"data": {"n": 5000 + at}})
        if self.told.note(changed, numbers[:1], [5000 + at], put_out=put_out):
            self.told.values[made[0]] = 5000 + at
        deleted = store.proxy("DELETE", f"/api/records/{made[1]}/")
        if self.told.note(deleted, numbers[1:2], [], put_out=put_out):
            del self.told.values[made[1]]

    def change(self) -> None:
        """Put eve out once something of hers was stored in this, and begin one more epoch."""
        eventually(lambda: self.told.acknowledged(put_out=True) > 0)
        self.begun.set()
        removed = self.shared.put_out(self.ada, self.eves)
        assert (removed.status, removed.json()["rotated"]) == (200, ["People"]), removed.body
        before = self.told.acknowledged(put_out=False)
        self.done.set()
        eventually(lambda: self.told.acknowledged(put_out=False) > before)
        rotated = self.ada.proxy("POST", f"{self.shared.team.made['url']}rotate/")
        assert rotated.status == 200, rotated.body

    def press(self) -> None:
        """Store beside all others, until groups were made of many: on a slow machine that may be
        when the others are done."""
        for n in range(MORE):
            if any(one.ended for one in self.log()):
                return
            answer = self.ada.send([{"n": 9000 + n}])
            if self.told.note(answer, [], [9000 + n], put_out=False):
                self.told.values[answer.json()[0]["id"]] = 9000 + n
            time.sleep(PAUSE)

    def log(self) -> list[CommitBody]:
        answer = self.ada.api("GET", f"{self.shared.schema}manifest/?since=0")
        deltas = wire.decode_all(answer.body, ManifestDelta)
        return [wire.decode_commit_body(one.commit) for delta in deltas for one in delta.entries]


@pytest.fixture
def scene(api: Service, tmp_path: Path) -> Iterator[Scene]:
    owner = Person(api, api.new_account(), tmp_path / "ada" / "proxy")
    team = Team(owner, tmp_path)
    assert team.made
    with ExitStack() as stack:
        shared = Shared(team, tmp_path, stack)
        shared.schema = shared.new_schema()
        ada = shared.proxy(owner, background=Background, **OFTEN)
        ada.ingest([{"n": 0}])
        stays, goes = shared.person(form.WRITER), shared.person(form.WRITER)
        made = Scene(
            shared,
            ada,
            shared.proxy(stays, background=Background, **OFTEN),
            shared.proxy(goes, background=Background, **OFTEN),
            goes,
        )
        (first,) = made.ada.everything()
        made.told.values[first["id"]] = 0
        yield made


def held(store: Store) -> dict[str, int]:
    every = store.everything()
    found = {one["id"]: one["data"]["n"] for one in every}
    assert len(found) == len(every), "a record is there twice"
    return found


def kept_back(scene: Scene) -> bytes:
    """A commit of eve's while she may write: the API keeps it, and lets her make another."""
    kept: list[bytes] = []

    def keep(asked: Asked) -> Reply | None:
        if asked.path != "/api/commits/" or kept:
            return None
        kept.append(asked.body)
        told = {"type": "about:blank", "status": 409, "code": "log_conflict", "detail": "x"}
        kind = {"Content-Type": "application/problem+json"}
        return Reply(409, kind, json.dumps(told).encode())

    scene.shared.fronts[scene.eves.id].invent = keep
    (made,) = scene.eve.ingest([{"n": 9}])
    scene.told.values[made] = 9
    return kept[0]


def test_whoever_writes_meanwhile_loses_nothing_and_who_was_put_out_adds_nothing(
    scene: Scene,
) -> None:
    shared, told = scene.shared, scene.told
    late = kept_back(scene)
    with ThreadPoolExecutor(WRITERS + 2) as pool:
        changing, pressing = pool.submit(scene.change), pool.submit(scene.press)
        for writing in [pool.submit(scene.write, at) for at in range(WRITERS)]:
            writing.result()
        changing.result()
        pressing.result()
    (last,) = scene.ada.ingest([{"n": 8}])
    told.values[last] = 8

    # What was acknowledged is there once, for those who stayed and for who comes later.
    fresh = shared.proxy(shared.person(form.READER))
    there = held(scene.ada)
    assert told.agrees(there), told.compare(there)
    assert there == held(scene.grace) == held(fresh)
    answer = scene.ada.proxy("POST", f"{shared.schema}verify/")
    assert answer.status == 200, answer.body
    *altered, report = [json.loads(line) for line in answer.body.splitlines() if line]
    assert (altered, report["verify"]["rows"]) == ([], len(there))

    # All of it was under way at once: merges, groups made of many, deletions, three epochs.
    log = scene.log()
    assert [one.key_version for one in log] == sorted(one.key_version for one in log)
    assert {one.key_version for one in log} == {1, 2, 3}
    for what in ("replaced", "ended", "killed"):
        assert any(getattr(one, what) for one in log), what
    refusals = [code for out, _, code in told.said if out and code]
    assert set(refusals) & OUT, told.said

    # Of hers nothing is in the log that knows of her removal, and what she kept comes too late.
    gone = shared.team.view(shared.team.ada).roster.member(scene.eves.id)
    assert gone is not None and not gone.present
    assert any(one.member == scene.eves.id for one in log)
    assert all(one.member != scene.eves.id for one in log if one.key_version > 1)
    api = shared.team.ada.service.base_url
    kind = {"Content-Type": wire.MEDIA_TYPE}
    sent = call("POST", f"{api}/api/commits/", late, auth=scene.eves.account.auth, headers=kind)
    assert sent.status in (403, 404, 409), sent.body

    # Nor does it count where an API takes it: no proxy follows a log with it.
    (commit,) = (one for one in wire.decode(late) if isinstance(one, Commit))

    def taken(delta: ManifestDelta) -> ManifestDelta:
        entry = LogEntry(delta.version + 1, commit)
        return msgspec.structs.replace(
            delta, version=entry.version, entries=[*delta.entries, entry]
        )

    reader = shared.person(form.READER)
    store = shared.proxy(reader)
    with shared.fronts[reader.id].telling(on(("manifest",), each(ManifestDelta, taken))):
        assert refused(store.ask()) == (422, "log_broken")
    assert held(store) == there
