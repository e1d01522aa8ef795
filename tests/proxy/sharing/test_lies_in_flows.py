"""Each single answer of the API in each flow that shares, takes away, erases or seals again is
replaced: by 404, by 409, by an empty list, by an older answer. The flow refuses by a name of
``EXPECTED``, or it has done what it says with the same protection; and nothing is lost.

Flows that need no log run with the flows of sharing alone, several in one team; the others with a
proxy of their own.
Each answer is replaced once, by one lie after the other; each flow begins with another lie, so that
what all flows ask first, such as the roster, is replaced by each.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from encrypted_records.crypto.recovery import phrase_of
from encrypted_records.index.roster.access import read_requests
from encrypted_records.index.roster.roster import Roster, due_datasets
from encrypted_records.model import ids, wire
from encrypted_records.model import roster as form
from encrypted_records.proxy.process import JOBS
from encrypted_records.proxy.sharing.settling import Sharing
from tests.proxy.sharing.people import Person, Team, new_person
from tests.proxy.sharing.shared import Shared, numbers
from tests.proxy.sharing.tasks import Task, do
from tests.proxy.sharing.test_flows import make_owner
from tests.support.front import Asked, Front, Reply, running_front
from tests.support.jobs import ended
from tests.support.keyrings import keyrings_in
from tests.support.proxies import settle_all
from tests.support.service import Answer, Service
from tests.support.store import Store

#: What is asked: a method, and a path without its ids.
Kind = tuple[str, str]
_ID = re.compile(r"/([0-9A-Za-z]{22}|[0-9a-f-]{36})(?=/|$)")
_PROBLEM = {"Content-Type": "application/problem+json"}
WHO: Kind = ("GET", "/api/users/self/")
SENDING: Kind = ("POST", "/api/organizations/*/roster/")
LIES = ("not found", "conflict", "nothing", "older")

_GONE = {"not_found"}
_MOVED = {"log_moved", "log_conflict"}
_LACKING = {"roster_older", "grant_missing"}
#: An older answer may also be the present one, or not matter. Which it is follows from what was
#: asked before.
_OLDER = {"", "roster_broken", "roster_older", "grant_missing", "grant_broken", "key_missing"}
Codes = dict[str, set[str]]


def codes(
    nothing: set[str], older: set[str] = _OLDER, *, gone: set[str] = _GONE, moved: set[str] = _MOVED
) -> Codes:
    return {"not found": gone, "conflict": moved, "nothing": nothing, "older": older}


_TAKING = codes(_LACKING | {""}, moved=_MOVED | {""})
#: A roster that was seen to have the dataset is hidden by a 404.
_WITH_LOGS = codes(
    {"", "api_failed"},
    {"", "roster_broken", "log_broken", "api_failed"},
    gone=_GONE | {"", "roster_older"},
    moved=_MOVED | {"", "log_broken"},
)
_INVITED = {"invitation_over", "invitation_words"}
#: Of each flow and lie, the codes by which it may be refused; "" where it goes through, and then it
#: has done what it says: nobody keeps what was taken from them, and no log is open.
EXPECTED: dict[str, Codes] = {
    "foundation": codes({"", "unavailable"}, {"", "unavailable"}),
    "invitation": codes(_LACKING),
    "acceptance": codes(_INVITED, _INVITED | {""}),
    "letting in": codes(_LACKING | {""}),
    "service": codes(_LACKING | {""}),
    "promote": codes(_LACKING),
    "share": codes(_LACKING),
    "listing": codes(_LACKING),
    "asking": codes(_LACKING | {""}, gone=_GONE | {"roster_older"}),
    "demote": _TAKING,
    "removal": _TAKING,
    "rotation": _TAKING,
    "recovery": codes({"", "grant_missing"}),
    "removal of a writer": _WITH_LOGS
    | {"not found": _GONE | {""}, "nothing": {"", "api_failed", "not_a_member"}},
    "rotation with records": _WITH_LOGS,
    # What was deleted and called refused is counted once more.
    "erasure": _WITH_LOGS | {"conflict": _WITH_LOGS["conflict"] | {"confirm_count"}},
    "reseal": {lie: {*allowed, "failed"} for lie, allowed in _WITH_LOGS.items()},
    "forgetting": _WITH_LOGS,
}
NAMES = tuple(EXPECTED)


def kind_of(asked: Asked) -> Kind:
    return asked.method, _ID.sub("/*", asked.path.partition("?")[0])


def _problem(status: int, code: str) -> Reply:
    told = {"type": "about:blank", "title": "x", "status": status, "code": code, "detail": "x"}
    return Reply(status, _PROBLEM, json.dumps(told).encode())


def _emptied(reply: Reply) -> Reply | None:
    """The answer without what it lists; None where it lists nothing."""
    if reply.status >= 400 or not reply.body:
        return None
    if reply.body.startswith(b"ERS1"):
        return reply.with_body(wire.encode([]))
    found = json.loads(reply.body)
    if isinstance(found, list):
        return reply.with_body(b"[]")
    if "results" in found:
        return reply.with_body(json.dumps({**found, "results": [], "next": None}).encode())
    return reply.with_body(b"{}")


def lies_about(asked: Asked, reply: Reply, older: Reply) -> dict[str, Reply]:
    """The answers that can replace this one, by lie; an answer that says the same is not a lie.

    Args:
        older: the first answer to the same question.
    """
    emptied = _emptied(reply)
    conflict = "log_moved" if "/roster/" in asked.path else "log_conflict"
    made = {
        "not found": _problem(404, "not_found"),
        "conflict": _problem(409, conflict),
        "nothing": reply if emptied is None else emptied,
        "older": older,
    }
    return {lie: answer for lie, answer in made.items() if answer.body != reply.body}


@dataclass
class Liar:
    """Stands before the API, remembers its first answer to each question, and replaces one."""

    front: Front
    _first: dict[tuple[str, str], Reply] = field(default_factory=dict)
    _seen: Counter[Kind] = field(default_factory=Counter)
    _wanted: tuple[str, Kind, int] | None = None
    #: the lies about each answer since :meth:`asked_by` began
    _possible: dict[tuple[Kind, int], set[str]] = field(default_factory=dict)
    told: bool = False

    def __post_init__(self) -> None:
        self.front.lie = self._answer

    def _answer(self, asked: Asked, reply: Reply) -> Reply:
        place = (asked.method, asked.path.partition("?")[0])
        older = self._first.setdefault(place, reply)
        kind = kind_of(asked)
        self._seen[kind] += 1
        lies = lies_about(asked, reply, older)
        self._possible[kind, self._seen[kind]] = set(lies)
        if self._wanted is None or self._wanted[1:] != (kind, self._seen[kind]):
            return reply
        self.told = self._wanted[0] in lies
        return lies.get(self._wanted[0], reply)

    @contextmanager
    def replacing(self, lie: str, kind: Kind, number: int) -> Iterator[None]:
        self._seen, self._wanted, self.told = Counter(), (lie, kind, number), False
        try:
            yield
        finally:
            self._wanted = None

    def asked_by(self, act: Callable[[], object]) -> dict[tuple[Kind, int], set[str]]:
        """What an act asks of the API: each question with its number among those of its kind, and
        the lies that there are about its answer."""
        self._seen, self._possible = Counter(), {}
        act()
        # Who somebody is, a proxy asks again after ten seconds: that comes by the clock alone.
        return {place: lies for place, lies in self._possible.items() if place[0] != WHO}


@dataclass
class Flow:
    """``make`` prepares it anew, ``act`` does it and returns the code of its refusal, ``check`` is
    told whether it went through, and sees that nothing was lost and nothing let in."""

    name: str
    make: Callable[[], None]
    act: Callable[[], str]
    check: Callable[[bool], None]

    def run(self, liar: Liar) -> None:
        """Do it as often as it asks, with another answer replaced each time."""
        # The second time an older answer to each question is known.
        for _ in range(2):
            self.make()
            said: list[str] = []
            asked = liar.asked_by(lambda said=said: said.append(self.act()))  # type: ignore[misc]
            assert said == [""], (self.name, said)
            self.check(True)
        replaced: set[tuple[Kind, int]] = set()
        for at, ((kind, number), possible) in enumerate(asked.items(), NAMES.index(self.name)):
            for lie in (LIES[(at + turn) % len(LIES)] for turn in range(len(LIES))):
                if lie not in possible or (kind, number) in replaced:
                    continue
                self.make()
                with liar.replacing(lie, kind, number):
                    code = self.act()
                if liar.told:
                    replaced.add((kind, number))
                    told = (self.name, kind, number, lie, code)
                    # Whether an entry is stored, the roster tells, and not this answer.
                    is_sent = {""} if kind == SENDING else set[str]()
                    assert code in EXPECTED[self.name][lie] | is_sent, told
                self.check(code == "")
        # Work in the background may not come again in the same number.
        assert {kind for kind, _ in replaced} == {kind for kind, _ in asked}


def make_service(team: Team) -> bytes:
    """The id of a new service that writes the dataset."""
    name, shares = f"{os.urandom(6).hex()}@example.org", [team.share(form.WRITER)]
    made = team.ada.do(
        lambda sharing: sharing.services.make(team.ada.holder, team.organization, name, shares, 0)
    )
    return made.id


def unprotected(roster: Roster) -> list[str]:
    """Of datasets, what those who lost a right to them still have."""
    return [roster.dataset(due_dataset.dataset).name for due_dataset in due_datasets(roster)]  # type: ignore[union-attr]


# --- flows of sharing -------------------------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """The roster that a proxy of the owner's reads when it is started now, before it settles and
    afterwards; and the commitments of the keys that it opens then, by epoch."""

    before: Roster
    after: Roster
    troubles: list[str]
    keys: Mapping[int, bytes]


def see(team: Team) -> Seen:
    async def act(sharing: Sharing) -> Seen:
        place = (team.ada.holder, team.organization)
        view = await sharing.reader.read(*place)
        assert view is not None
        before = view.roster.copy()
        settled = await sharing.settling.settle(*place)
        view = await sharing.reader.read(*place)
        assert view is not None
        # A grant that settling sealed is opened as the API has stored it, and not from memory.
        sharing.grants.forget_user(team.ada.id)
        held = await sharing.grants.whole(view, team.dataset)
        keys = {epoch: key.commitment for epoch, key in held.items()}
        return Seen(
            before, view.roster, [trouble.error.reason for trouble in settled.troubles], keys
        )

    return team.ada.do(act)


@dataclass
class Scene:
    team: Team
    front: Front
    stays: Person
    #: who becomes an owner and is one no more
    moves: Person

    def task(self, flow: str, by: Person | None = None, **more: Any) -> Task:
        who = by or self.team.ada
        return Task(
            flow=flow,
            url=self.team.ada.service.base_url,
            folder=str(who.folder),
            user=who.id,
            auth=who.holder.auth,
            organization=self.team.organization,
            dataset=self.team.dataset,
            **more,
        )

    def lied_to(self, task: Task) -> str:
        return do(msgspec.structs.replace(task, url=self.front.url))

    def new_name(self) -> str:
        return f"{os.urandom(6).hex()}@example.org"

    def check_all(self) -> Seen:
        """What was refused is done by the next who looks; everybody who is in opens every key, and
        the roster has nothing in it that does not count."""
        seen = see(self.team)
        roster = seen.after
        assert (seen.troubles, unprotected(roster), roster.voids) == ([], [], {})
        wanted = {epoch.epoch: epoch.commitment for epoch in roster.epochs(self.team.dataset)}
        assert seen.keys == wanted
        assert self.stays is self.team.ada or self.team.keys(self.stays) == wanted
        return seen

    def flows(self) -> Iterator[Flow]:
        yield from (self.invitation(), self.acceptance(), self.letting_in(), self.service())
        yield from (self.role(owner=True), self.role(owner=False), self.share(), self.removal())
        yield from (self.rotation(), self.recovery(), self.listing(), self.asking())

    def _flow(
        self,
        name: str,
        make: Callable[[], Task],
        holds: Callable[[Task, Roster], bool],
        *,
        takes: bool = False,
    ) -> Flow:
        """
        Args:
            holds: whether what the flow says is so, where it went through.
            takes: whether somebody loses something by it.
        """
        tasks: list[Task] = []

        def check(went_through: bool) -> None:
            before = self.check_all().before
            if went_through:
                assert holds(tasks[-1], before), name
                assert not takes or unprotected(before) == []

        return Flow(
            name,
            lambda: tasks.append(make()),
            lambda: self.lied_to(tasks[-1]),
            check,
        )

    def invitation(self) -> Flow:
        def holds(task: Task, roster: Roster) -> bool:
            open_ = [one for one in roster.invitations() if one.content.name == task.name]
            return len(open_) == 1 and open_[0].open

        return self._flow("invitation", lambda: self.task("invite", name=self.new_name()), holds)

    def acceptance(self) -> Flow:
        def make() -> Task:
            grace = self.team.somebody()
            invited = self.team.invite(grace)
            return self.task("accept", grace, target=invited.id, words=invited.words)

        return self._flow("acceptance", make, lambda _task, _roster: True)

    def letting_in(self) -> Flow:
        def make() -> Task:
            grace = self.team.somebody()
            self.team.accept(grace, self.team.invite(grace))
            return self.task("settle", target=grace.id)

        # An answer that is withheld lets nobody in, which the list of people shows.
        return self._flow("letting in", make, lambda _task, _roster: True)

    def service(self) -> Flow:
        def holds(task: Task, roster: Roster) -> bool:
            made = [member for member in roster.members() if member.name == task.name]
            return [one.writes(task.dataset).whole for one in made] == [True]

        return self._flow("service", lambda: self.task("make_service", name=self.new_name()), holds)

    def role(self, *, owner: bool) -> Flow:
        flow, other = ("promote", "demote") if owner else ("demote", "promote")

        def make() -> Task:
            assert do(self.task(other, target=self.moves.id)) == ""
            return self.task(flow, target=self.moves.id)

        def holds(task: Task, roster: Roster) -> bool:
            member = roster.member(task.target)
            return member is not None and member.owns == owner

        return self._flow(flow, make, holds, takes=not owner)

    def share(self) -> Flow:
        def make() -> Task:
            ada, stays = self.team.ada, self.stays.id
            share = [self.team.share(form.READER)]
            ada.do(
                lambda sharing: sharing.members.set_shares(
                    ada.holder, self.team.organization, self.team.dataset, stays, share
                )
            )
            assert do(self.task("settle")) == ""
            return self.task("share", target=stays)

        def holds(task: Task, roster: Roster) -> bool:
            return roster.writes(task.target, task.dataset).whole

        return self._flow("share", make, holds)

    def removal(self) -> Flow:
        def make() -> Task:
            return self.task("put_out", target=make_service(self.team))

        def holds(task: Task, roster: Roster) -> bool:
            member = roster.member(task.target)
            return member is not None and not member.present

        return self._flow("removal", make, holds, takes=True)

    def rotation(self) -> Flow:
        epochs: list[int] = []

        def make() -> Task:
            epochs.append(len(self.team.view(self.team.ada).roster.epochs(self.team.dataset)))
            return self.task("rotate")

        def holds(task: Task, roster: Roster) -> bool:
            # Who is told that it was not stored begins another one: no harm is done.
            return len(roster.epochs(task.dataset)) > epochs[-1]

        return self._flow("rotation", make, holds)

    def listing(self) -> Flow:
        def make() -> Task:
            assert do(self.task("unlist")) == ""
            return self.task("set_listed")

        def holds(task: Task, roster: Roster) -> bool:
            return roster.listed_at(task.dataset) > 0

        return self._flow("listing", make, holds)

    def asking(self) -> Flow:
        """A request that went through is one that stands; of others there is none, or that."""

        def stored() -> list[form.AccessRequest]:
            path = f"{self.team.ada.account.organization}requests/"
            return wire.decode_all(self.team.ada.call("GET", path).body, form.AccessRequest)

        def make() -> Task:
            # The end of a listing ends its requests.
            for flow in ("unlist", "set_listed"):
                assert do(self.task(flow)) == ""
            assert stored() == []
            return self.task("ask", self.stays)

        def holds(task: Task, roster: Roster) -> bool:
            found = read_requests(roster, stored(), int(time.time()))
            asked = [(one.body.member, one.body.dataset) for one in found.standing]
            return asked == [(task.user, task.dataset)] and not found.forged

        return self._flow("asking", make, holds)

    def recovery(self) -> Flow:
        grace, ada = self.moves, self.team.ada
        roots = keyrings_in(ada.folder).of(ada.holder).roots
        words = ",".join(phrase_of(roots[root]) for root in sorted(roots))

        def make() -> Task:
            assert do(self.task("demote", target=grace.id)) == ""
            make_owner(grace, self.team)
            return self.task("recover", grace, words=words, name=grace.account.email)

        def holds(task: Task, roster: Roster) -> bool:
            member = roster.member(task.user)
            return member is not None and member.owns

        return self._flow("recovery", make, holds)


#: Flows of one team each: who takes keys away seals new ones for all who are still in.
TEAMS = (
    ("invitation", "service", "promote", "listing", "asking", "share"),
    *(("acceptance",), ("letting in",), ("rotation", "recovery"), ("demote",), ("removal",)),
)


@pytest.mark.parametrize("names", TEAMS, ids=", ".join)
def test_flows_of_sharing_refuse_by_name_or_protect_as_ever(
    api: Service, tmp_path: Path, names: tuple[str, ...]
) -> None:
    team = Team(new_person(api, tmp_path), tmp_path)
    assert team.made
    with running_front(api.base_url) as front:
        scene = Scene(team, front, team.join(), team.join())
        flows = {flow.name: flow for flow in scene.flows()}
        for name in names:
            flows[name].run(Liar(front))


def test_each_flow_is_lied_to() -> None:
    own = {"foundation", *(name for names in TEAMS for name in names)}
    assert len(own) + len(WITH_RECORDS) == len(NAMES)


def test_a_foundation_is_whole_or_refused_by_name(api: Service, tmp_path: Path) -> None:
    teams: list[Team] = []

    def make() -> None:
        person = new_person(api, tmp_path)
        teams.append(Team(person, tmp_path))
        teams[-1].__dict__["made"] = person.new_dataset()

    with running_front(api.base_url) as front:

        def act() -> str:
            one = Scene(teams[-1], front, teams[-1].ada, teams[-1].ada)
            return one.lied_to(one.task("found", name=teams[-1].ada.account.email))

        def check(went_through: bool) -> None:
            one = Scene(teams[-1], front, teams[-1].ada, teams[-1].ada)
            if not went_through:
                assert do(one.task("found", name=one.team.ada.account.email)) == ""
            assert one.check_all().after.founder == one.team.ada.id

        Flow("foundation", make, act, check).run(Liar(front))


# --- flows with logs --------------------------------------------------------------------------


@dataclass
class Records:
    """A dataset whose owner has a proxy, and a writer with another one, who stays."""

    shared: Shared
    liar: Liar
    ada: Store
    stays: Store
    kept: list[int]

    @property
    def people(self) -> str:
        return f"{self.shared.team.ada.account.organization}people/"

    @property
    def dataset(self) -> str:
        return str(self.shared.team.made["url"])

    def roster(self) -> Roster:
        return self.shared.team.view(self.shared.team.ada).roster

    def check_all(self, *, ends: bool = False) -> None:
        """
        Args:
            ends: whether the log has an end with each epoch but the first.
        """
        assert numbers(self.ada) == numbers(self.stays) == self.kept
        answer = self.ada.proxy("POST", f"{self.people.removesuffix('people/')}settle/")
        assert (answer.status, answer.json()["troubles"]) == (200, []), answer.body
        roster = self.roster()
        assert unprotected(roster) == [] and roster.voids == {}
        if ends:
            begun = [epoch.epoch for epoch in roster.epochs(self.shared.team.dataset)]
            ended_with = {end.epoch for end in roster.ends(ids.from_text(self.ada.schema_id))}
            assert ended_with == set(begun[1:])

    def removal(self) -> Flow:
        gone: list[bytes] = []

        def make() -> None:
            """A person first, and then services, which are quicker to make and removed by the same
            request."""
            gone.append(
                make_service(self.shared.team) if gone else self.shared.person(form.WRITER).id
            )

        def check(went_through: bool) -> None:
            if went_through:
                roster = self.roster()
                assert not roster.member(gone[-1]).present  # type: ignore[union-attr]
                assert unprotected(roster) == []
            self.check_all(ends=True)

        def act() -> str:
            return said(self.ada.proxy("DELETE", f"{self.people}{ids.to_text(gone[-1])}/"))

        return Flow("removal of a writer", make, act, check)

    def rotation(self) -> Flow:
        epochs: list[int] = []

        def count() -> int:
            return len(self.roster().epochs(self.shared.team.dataset))

        def check(went_through: bool) -> None:
            assert not went_through or count() > epochs[-1]
            self.check_all(ends=True)

        return Flow(
            "rotation with records",
            lambda: epochs.append(count()),
            lambda: said(self.ada.proxy("POST", f"{self.dataset}rotate/")),
            check,
        )

    def erasure(self) -> Flow:
        def make() -> None:
            (one,) = self.ada.ingest([{"n": 7, "s": "to be erased"}])
            assert one
            assert numbers(self.stays) == sorted([*self.kept, 7])

        def ask() -> Answer:
            body = {"field": "n", "value": 7}
            return self.ada.proxy("POST", f"{self.dataset}erase/?confirm=1", body)

        def check(went_through: bool) -> None:
            if not went_through and numbers(self.ada) != self.kept:
                assert ask().status in (200, 202)
            self.check_all()

        return Flow("erasure", make, lambda: said(ask()), check)

    def seal_again(self) -> str:
        """The code of its refusal, or how its job has ended, which asks nothing any more."""
        answer = self.ada.proxy("POST", f"{self.ada.schema}reseal/")
        if answer.status >= 400:
            return said(answer)
        job = ended(self.ada, answer.headers["X-Job-Status-URL"])
        # It deletes what it has left at the API once its end is told.
        settle_all(JOBS)
        return "" if job["status"] == "completed" else "failed"

    def forget(self, **members: Any) -> Answer:
        return self.ada.proxy("POST", f"{self.dataset}forget/", members)

    def begin_epoch(self) -> None:
        assert said(self.ada.proxy("POST", f"{self.dataset}rotate/")) == ""

    def reseal(self) -> Flow:
        def make() -> None:
            """What was refused is left to be sealed again."""
            if all(one["present"] for one in self.forget(dry_run=True).json()["schemas"]):
                self.begin_epoch()

        return Flow("reseal", make, self.seal_again, lambda _: self.check_all())

    def forgetting(self) -> Flow:
        def make() -> None:
            """What was refused is left to be forgotten."""
            told = self.forget(dry_run=True).json()
            if told["oldest"] == told["epoch"]:
                self.begin_epoch()
                assert self.seal_again() == ""

        def act() -> str:
            answer = self.forget()
            return "" if answer.status == 202 else said(answer)

        return Flow("forgetting", make, act, lambda _: self.check_all())


def said(answer: Answer) -> str:
    """The code of a refusal, or of a trouble among what was done; empty where there is neither."""
    told = answer.json()
    if answer.status >= 400:
        return str(told["code"])
    return next((str(one["code"]) for one in told.get("troubles", ())), "")


@pytest.fixture
def records(shared: Shared) -> Records:
    ada = shared.proxy(shared.team.ada)
    ada.ingest([{"n": 1, "s": "one"}, {"n": 2, "s": "two"}])
    liar = Liar(shared.fronts[shared.team.ada.id])
    stays = shared.proxy(shared.person(form.WRITER))
    stays.ingest([{"n": 3, "s": "three"}])
    assert numbers(ada) == [1, 2, 3]
    return Records(shared, liar, ada, stays, [1, 2, 3])


WITH_RECORDS = ("removal", "rotation", "erasure", "reseal", "forgetting")


@pytest.mark.parametrize("name", WITH_RECORDS)
def test_a_flow_with_records_refuses_by_name_or_protects_as_ever(
    records: Records, name: str
) -> None:
    flow: Flow = getattr(records, name)()
    flow.run(records.liar)
