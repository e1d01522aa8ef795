"""A definition goes through every change that there is, while others store, change, delete, merge
and ask by two proxies: answers, ids and versions are those of an oracle through all of it."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.proxy.test_reseal import begin
from tests.support import jobs
from tests.support.proxies import running_proxy
from tests.support.second_proxy import with_keyrings
from tests.support.service import Answer, Service
from tests.support.store import Store, new_store

LONG = "longer than what the index holds of a text, whatever it is: "
#: What nobody changes, and from where on the numbers of others begin.
STILL, OTHERS = 20, 1000
WRITERS = 2
#: Seconds between two records of a writer, and two questions.
PAUSE = 0.3
#: Refusals of rows that are of the definition before, or of the next.
OTHER_DEFINITION = {"invalid_records"}

Rules = dict[str, dict[str, Any]]
#: A record as its writer means it: its number, and how often it was changed.
Meant = tuple[int, int]


@dataclass(frozen=True)
class Step:
    """What a definition becomes, and how records look under it."""

    name: str
    rules: Rules
    takes: str = "commit"
    asked: Mapping[str, Any] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)
    text: str = "note"
    code: str = "code"
    gone: bool = True

    @property
    def definition(self) -> dict[str, Any]:
        return {"type": "object", "properties": self.rules, **self.more}

    def shown(self, meant: Meant) -> dict[str, Any]:
        number, changes = meant
        code: Any = number if self.code == "number" else str(number)
        row = {"n": number, "size": number / 2, self.code: code, self.text: text(meant)}
        return row | ({"gone": "x"} if self.gone else {}) | ({"times": changes} if changes else {})


def text(meant: Meant) -> str:
    return f"{LONG}part{meant[0] % 3} of {meant[1]}"


BEFORE: Rules = {
    "n": {"type": "integer", "minimum": 0, "maximum": 9999},
    "size": {"type": "number", "minimum": 0, "maximum": 9999, "precision": 1},
    "code": {"type": "string", "maxLength": 8, "padTo": 12},
    "note": {"type": "string"},
    "gone": {"type": "string"},
    "times": {"type": "integer", "minimum": 0, "maximum": 9},
}


def steps() -> Iterator[Step]:
    """Each row of the table of changes, one after another; the first is how it begins."""
    rules = BEFORE
    yield (step := Step("the beginning", rules))
    rules = rules | {"extra": {"type": "string"}, "code": {"type": "string", "maxLength": 20}}
    yield (step := replace(step, name="a new field and looser rules", rules=rules))
    rules = {("remark" if name == "note" else name): rule for name, rule in rules.items()}
    step = replace(step, name="another name", rules=rules, text="remark")
    yield replace(step, asked={"renames": {"remark": "note"}})
    wide = {"minimum": -500, "maximum": 99999}
    rules = rules | {"n": rules["n"] | wide, "size": rules["size"] | wide | {"precision": 3}}
    yield (step := replace(step, name="wider bounds and more decimals", rules=rules))
    rules = rules | {
        "n": rules["n"] | {"minimum": 0, "maximum": 50_000},
        "code": rules["code"] | {"pattern": "^[0-9]+$"},
        "gone": rules["gone"] | {"enum": ["x", "y"]},
    }
    more: dict[str, Any] = {"required": ["n", "gone"]}
    step = replace(step, name="rules that demand more", rules=rules, more=more, takes="proof")
    yield step
    rules = rules | {"remark": rules["remark"] | {"x-index": ["words"]}}
    yield (step := replace(step, name="an index of words", rules=rules, takes="commit"))
    more = more | {"unique": [["n"]]}
    yield (step := replace(step, name="unique", more=more, takes="proof"))
    kept = {name: rule for name, rule in rules.items() if name not in ("code", "gone")}
    rules = kept | {"number": {"type": "integer", "minimum": 0, "maximum": 99999}}
    step = replace(step, name="another type, and a field that goes", rules=rules, takes="reseal")
    step = replace(step, more={"required": ["n"], "unique": [["n"]]}, code="number", gone=False)
    yield replace(step, asked={"renames": {"number": "code"}, "drops": ["gone"]})
    enforced = step.more | {"formats": "enforced"}
    yield (step := replace(step, name="formats", more=enforced, takes="commit"))
    yield replace(step, name="all of it sealed again", takes="nothing")


STEPS = tuple(steps())


@dataclass
class Scene:
    """A schema, those who use it, and what they were told."""

    store: Store
    beside: Store
    #: the number of the definition that holds; the next may hold already
    step: int = 0
    meant: dict[str, Meant] = field(default_factory=dict)
    ended: threading.Event = field(default_factory=threading.Event)
    busy: list[threading.Lock] = field(
        default_factory=lambda: [threading.Lock() for _ in range(WRITERS)]
    )

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """While every writer is between two records."""
        with ExitStack() as stack:
            for one in self.busy:
                stack.enter_context(one)
            yield

    def under_one(self, meant: Meant, send: Callable[[dict[str, Any]], Answer]) -> Answer:
        """Send a row as the definition wants it that holds by then.

        A refusal is right only where another one than it was written for holds.
        """
        while True:
            at = self.step
            answer = send(STEPS[at].shown(meant))
            if answer.status < 300:
                return answer
            problem = answer.json()
            assert problem["code"] in OTHER_DEFINITION, (STEPS[at].name, answer.body)
            answer = send(STEPS[min(at + 1, len(STEPS) - 1)].shown(meant))
            if answer.status < 300:
                return answer
            assert self.step != at, (STEPS[at].name, problem, answer.body)

    def write(self, writer: int) -> None:
        """Store one record after another; change each third, delete the one after it."""
        store = self.beside if writer % 2 else self.store
        for n in itertools.count(OTHERS * (writer + 1)):
            if self.ended.wait(PAUSE):
                return
            with self.busy[writer]:
                made = self.under_one((n, 0), lambda row: store.send([row]))
                record = made.json()[0]["id"]
                self.meant[record] = (n, 0)
                path = f"/api/records/{record}/"
                if n % 3 == 0:
                    self.under_one((n, 1), partial(patch, store, path))
                    self.meant[record] = (n, 1)
                elif n % 3 == 1:
                    assert store.proxy("DELETE", path).status == 204
                    del self.meant[record]

    def ask(self, still: list[str]) -> int:
        """Ask for what nobody changes, over and over; how often."""
        for times in itertools.count():
            if self.ended.wait(PAUSE):
                return times
            store = (self.store, self.beside)[times % 2]
            at = self.step
            for where, order in (
                ({"field": "n", "op": "lt", "value": STILL}, "-n"),
                ({"field": "size", "op": "between", "value": [0, STILL / 2 - 0.5]}, "-size"),
            ):
                found = store.search(where, order_by=[order], limit=100)["results"]
                assert [one["id"] for one in found] == still[::-1]
                rows = [one["data"] for one in found]
                allowed = [
                    [step.shown((n, 0)) for n in reversed(range(STILL))]
                    for step in STEPS[at : self.step + 2]
                ]
                assert rows in allowed, STEPS[at].name
        raise AssertionError

    def merge(self) -> None:
        while not self.ended.wait(PAUSE):
            answer = self.store.proxy("POST", f"{self.store.schema}merge/", {})
            assert answer.status in (200, 409), answer.body

    def change(self, step: Step) -> None:
        if step.takes == "nothing":
            jobs.completed(self.store, begin(self.store).headers["X-Job-Status-URL"])
            return
        body = {"schema": step.definition, **step.asked}
        path = f"{self.store.schema}change/"
        plan = self.store.proxy("POST", path, {**body, "dry_run": True})
        assert plan.status == 200, (step.name, plan.body)
        told = plan.json()
        assert (told["takes"], told["possible"]) == (step.takes, True), (step.name, told)
        answer = self.store.proxy("POST", path, body)
        if step.takes == "reseal":
            assert answer.status == 202, answer.body
            jobs.completed(self.store, answer.headers["X-Job-Status-URL"])
        else:
            assert answer.json().get("applied"), (step.name, answer.body)

    def check(self) -> None:
        """Everything is as it was meant, for both proxies."""
        step = STEPS[self.step]
        with self.quiet():
            meant = dict(self.meant)
            every = {one: step.shown(own) for one, own in meant.items()}
            for store in (self.store, self.beside):
                found = {one["id"]: one["data"] for one in store.everything()}
                assert found == every, step.name
                assert len(store.found()) == len(every)
                own = next(iter(meant.values()))
                same = {one for one, other in meant.items() if text(other) == text(own)}
                asked = {"field": step.text, "op": "eq", "value": text(own)}
                assert set(store.found(asked)) == same
                part = {"field": step.text, "op": "has_words", "value": "part1"}
                assert set(store.found(part)) == {
                    one for one, (n, _) in meant.items() if n % 3 == 1
                }


@pytest.mark.parametrize("service", ["postgresql"], indirect=True)
def test_answers_ids_and_versions_are_right_through_every_change(
    service: Service, tmp_path: Path
) -> None:
    store = new_store(service, STEPS[0].definition)
    still = store.ingest([STEPS[0].shown((n, 0)) for n in range(STILL)], at_once=7)
    with running_proxy(service.base_url, with_keyrings(service, tmp_path)) as other:
        beside = replace(store, service=replace(service, proxy_url=other.url))
        scene = Scene(store, beside, meant={one: (n, 0) for n, one in enumerate(still)})
        etags = versions(store, still)
        with ThreadPoolExecutor(WRITERS + 2) as pool:
            others = [pool.submit(scene.write, writer) for writer in range(WRITERS)]
            others.append(pool.submit(scene.merge))
            asking = pool.submit(scene.ask, still)
            try:
                for number, step in enumerate(STEPS):
                    if number:
                        scene.change(step)
                        scene.step = number
                    scene.check()
                    assert versions(beside, still) == etags, step.name
                    for one in filter(Future.done, others):
                        one.result()
                    assert not asking.done() or asking.result()
            finally:
                scene.ended.set()
            for one in others:
                one.result(60)
            assert asking.result(60) >= len(STEPS)
        scene.check()
        assert len(scene.meant) > STILL + WRITERS
        verified = beside.proxy("POST", f"{store.schema}verify/")
        *altered, report = [json.loads(line) for line in verified.body.splitlines() if line]
        assert (altered, report["verify"]["rows"]) == ([], len(scene.meant))


def patch(store: Store, path: str, row: dict[str, Any]) -> Answer:
    return store.proxy("PATCH", path, {"data": row})


def versions(store: Store, records: list[str]) -> list[str]:
    return [store.proxy("GET", f"/api/records/{record}/").headers["ETag"] for record in records]
