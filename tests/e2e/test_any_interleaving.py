"""Whatever is done in whatever order, through two proxies and with answers lost on the way, what
is found afterwards is what an oracle in plain Python holds.

``STATE_MACHINE_EXAMPLES`` and ``STATE_MACHINE_STEPS`` make it longer.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from encrypted_records.index.segments.merge_policy import Tier
from encrypted_records.proxy.process.background import Background
from encrypted_records.proxy.settings import Overrides
from tests import aggregate_oracle, oracle
from tests.support.front import Asked, Front, Reply, running_front
from tests.support.proxies import Proxy, running_proxy
from tests.support.service import Account, Answer, Service, call
from tests.support.store import exact, new_schema

pytestmark = pytest.mark.parametrize("service", ["postgresql"], indirect=True)

EXAMPLES = int(os.environ.get("STATE_MACHINE_EXAMPLES", "2"))
STEPS = int(os.environ.get("STATE_MACHINE_STEPS", "25"))

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "n": {"type": "integer", "minimum": 0, "maximum": 9},
    },
    "required": ["n"],
}
FIELDS = DEFINITION["properties"]
_LONG = "p" * 50
names = st.sampled_from([None, "", "a", "b", _LONG + "a", _LONG + "b"])
records = st.builds(
    lambda name, n: {"n": n} if name is None else {"name": name, "n": n}, names, st.integers(0, 9)
)
conditions = st.one_of(
    st.none(),
    st.builds(lambda n: {"field": "n", "op": "lt", "value": n}, st.integers(0, 9)),
    st.builds(lambda n: {"field": "n", "op": "eq", "value": n}, st.integers(0, 9)),
    st.builds(lambda t: {"field": "name", "op": "le", "value": t}, names.filter(bool)),
    st.just({"field": "name", "op": "is_null"}),
)
which = st.integers(0, 10**6)
#: Small enough that merges happen all the time.
TIERS = (Tier(16, 3), Tier(64, 2))


class Machine(RuleBasedStateMachine):
    """One schema, two proxies with one keyring, and every record with its version.

    ``held`` is in the order of storage: what is changed is stored anew.
    """

    def __init__(self, service: Service, account: Account, folder: Path) -> None:
        super().__init__()
        self.account = account
        self.schema = new_schema(service, account, DEFINITION)
        self.folder = folder / self.schema.split("/")[-2]
        self.stack = ExitStack()
        self.front: Front = self.stack.enter_context(running_front(service.base_url))
        self.proxies: list[ExitStack] = [ExitStack(), ExitStack()]
        self.running: list[Proxy] = []
        self.start(0)
        # The first proxy makes the keyring, the second gets a copy of it.
        made = self.post(0, "/api/keyring/backup/")
        assert made.status == 200, made.body
        self.share_keys()
        self.start(1)
        self.held: dict[str, tuple[dict[str, Any], int]] = {}
        self.gone: list[str] = []
        self.rotations = 0

    def teardown(self) -> None:
        for proxy in self.proxies:
            proxy.close()
        self.stack.close()

    def start(self, at: int) -> None:
        overrides = Overrides(tiers=TIERS)
        # Merges come between, whenever they do.
        started = running_proxy(
            self.front.url, self.folder / str(at), overrides=overrides, background=Background
        )
        proxy: Proxy = self.proxies[at].enter_context(started)
        self.running[at : at + 1] = [proxy]

    def share_keys(self) -> None:
        ours, theirs = (self.folder / str(at) / "proxy" for at in (0, 1))
        shutil.rmtree(theirs / "keyrings", ignore_errors=True)
        shutil.copytree(ours / "keyrings", theirs / "keyrings")
        shutil.copy(ours / "machine.key", theirs / "machine.key")

    def call(
        self, at: int, method: str, path: str, body: Any = None, headers: Mapping[str, str] = {}
    ) -> Answer:
        proxy = self.running[at % 2]
        # Keys go out and change only for the user who runs the proxy.
        shown = proxy.door if path.startswith("/api/keyring/") else {}
        headers = {**headers, **shown}
        return call(method, proxy.url + path, body, auth=self.account.auth, headers=headers)

    def post(self, at: int, path: str, body: Any = None) -> Answer:
        return self.call(at, "POST", path, body)

    def ask(self, at: int, what: str, **body: Any) -> Any:
        answer = self.post(at, f"/api/records/{what}/", {"schema": self.schema, **body})
        assert answer.status == 200, answer.body
        return exact(answer)

    def matching(self, where: Any) -> list[str]:
        return [one for one, (data, _) in self.held.items() if oracle.holds(where, data, FIELDS)]

    def chosen(self, number: int) -> str:
        return list(self.held)[number % len(self.held)]

    def stored(self, identifier: str, data: dict[str, Any], version: int) -> None:
        self.held.pop(identifier, None)
        self.held[identifier] = (data, version)

    # --- what is done ------------------------------------------------------------------------

    @rule(at=which, rows=st.lists(records, min_size=1, max_size=6))
    def ingest(self, at: int, rows: list[dict[str, Any]]) -> None:
        body = [{"schema": self.schema, "data": row} for row in rows]
        answer = self.post(at, "/api/records/ingest/", body)
        assert answer.status == 201, answer.body
        for one, row in zip(answer.json(), rows, strict=True):
            self.stored(one["id"], row, 1)

    @precondition(lambda self: self.held)
    @rule(at=which, number=which, name=names, n=st.one_of(st.none(), st.integers(0, 9)))
    def merge_fields(self, at: int, number: int, name: str | None, n: int | None) -> None:
        identifier = self.chosen(number)
        data, version = self.held[identifier]
        changes = {"name": name} if n is None else {"name": name, "n": n}
        path = f"/api/records/{identifier}/"
        answer = self.call(at, "PATCH", path, {"data": changes})
        assert answer.status == 200, answer.body
        together = {key: value for key, value in (data | changes).items() if value is not None}
        assert (answer.json()["data"], answer.headers["ETag"]) == (together, f'"{version + 1}"')
        self.stored(identifier, together, version + 1)

    @precondition(lambda self: self.held)
    @rule(at=which, number=which, row=records, stale=st.booleans())
    def replace(self, at: int, number: int, row: dict[str, Any], stale: bool) -> None:
        identifier = self.chosen(number)
        _, version = self.held[identifier]
        headers = {"If-Match": f'"{version + stale}"'}
        path = f"/api/records/{identifier}/"
        answer = self.call(at, "PUT", path, {"data": row}, headers)
        assert answer.status == (412 if stale else 200), answer.body
        if not stale:
            self.stored(identifier, row, version + 1)

    @precondition(lambda self: self.held)
    @rule(at=which, number=which, more=st.integers(0, 2))
    def delete(self, at: int, number: int, more: int) -> None:
        doomed = list(dict.fromkeys(self.chosen(number + step) for step in range(more + 1)))
        if more:
            query = "&".join(f"id={one}" for one in doomed)
            answer = self.call(at, "DELETE", f"/api/records/?{query}")
            assert answer.json() == {"deleted": len(doomed)}, answer.body
        else:
            answer = self.call(at, "DELETE", f"/api/records/{doomed[0]}/")
            assert answer.status == 204, answer.body
        for one in doomed:
            del self.held[one]
            self.gone.append(one)

    @rule(at=which, where=conditions.filter(bool), wrong=st.booleans())
    def delete_where(self, at: int, where: Any, wrong: bool) -> None:
        doomed = self.matching(where)
        body = {"schema": self.schema, "where": where}
        answer = self.post(at, f"/api/records/delete/?confirm={len(doomed) + wrong}", body)
        assert answer.status == (409 if wrong else 200), answer.body
        if not wrong:
            for one in doomed:
                del self.held[one]
                self.gone.append(one)

    @precondition(lambda self: self.rotations < 2)
    @rule()
    def rotate(self) -> None:
        answer = self.post(0, "/api/keyring/rotate/")
        assert answer.status == 201, answer.body
        self.proxies[1].close()
        self.share_keys()
        self.start(1)
        self.rotations += 1

    @rule(at=st.integers(0, 1))
    def restart(self, at: int) -> None:
        self.proxies[at].close()
        self.start(at)

    @rule(count=st.integers(1, 2), path=st.sampled_from(["commits", "rows", "pages", "manifest"]))
    def lose_answers(self, count: int, path: str) -> None:
        """The next answers of a kind never arrive, though the API did what it was asked."""
        left = [count]

        def lose(asked: Asked, reply: Reply) -> Reply | None:
            if f"/{path}/" in asked.path and left[0]:
                left[0] -= 1
                return None
            return reply

        self.front.lie = lose

    # --- what is found -----------------------------------------------------------------------

    @rule(at=which, where=conditions, order_by=st.sampled_from([["n"], ["-name", "n"], ["-n"]]))
    def sorted_pages(self, at: int, where: Any, order_by: list[str]) -> None:
        chosen = self.matching(where)
        rows = [self.held[one][0] for one in chosen]
        expected = [chosen[number] for number in oracle.in_order(order_by, rows, FIELDS)]
        found: list[str] = []
        cursor = None
        while True:
            body = {"where": where, "order_by": order_by, "limit": 4, "cursor": cursor}
            page = self.ask(at, "search", **body)
            found += [result["id"] for result in page["results"]]
            cursor = page["next_cursor"]
            if cursor is None:
                break
        assert found == expected

    @rule(at=which, where=conditions)
    def measures(self, at: int, where: Any) -> None:
        asked = [
            {"op": "sum", "field": "n"},
            {"op": "max", "field": "name"},
            {"op": "distinct", "field": "name"},
        ]
        rows = [self.held[one][0] for one in self.matching(where)]
        expected = [aggregate_oracle.measured(one, rows, FIELDS) for one in asked]
        assert self.ask(at, "aggregate", where=where, measures=asked) == {"measures": expected}

    @rule(at=which, number=which)
    def read(self, at: int, number: int) -> None:
        if self.held:
            identifier = self.chosen(number)
            answer = self.call(at, "GET", f"/api/records/{identifier}/")
            data, version = self.held[identifier]
            assert (answer.json()["data"], answer.headers["ETag"]) == (data, f'"{version}"')
        if self.gone:
            gone = self.gone[number % len(self.gone)]
            assert self.call(at, "GET", f"/api/records/{gone}/").status == 404

    @rule(at=which, where=conditions)
    def search(self, at: int, where: Any) -> None:
        found = self.ask(at, "search", where=where, count=True, limit=1000)
        ids = self.matching(where)
        assert [(result["id"], result["data"]) for result in found["results"]] == [
            (one, self.held[one][0]) for one in ids
        ]
        assert found["count"] == len(ids)

    @invariant()
    def both_count_the_same(self) -> None:
        if self.front.asked:
            self.front.forget()
            for at in (0, 1):
                assert self.ask(at, "search", limit=0, count=True)["count"] == len(self.held)


def test_any_interleaving_equals_the_oracle(service: Service, tmp_path: Path) -> None:
    class OfThisTest(Machine):
        def __init__(self) -> None:
            # Each has a keyring of its own, which is what its organization is founded with.
            super().__init__(service, service.new_account(), tmp_path)

    run_state_machine_as_test(
        OfThisTest,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.explicit, Phase.reuse, Phase.generate],
        ),
    )
