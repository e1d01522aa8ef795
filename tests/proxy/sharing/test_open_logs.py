"""A removal ends the logs of its datasets whatever the API answers: where it does not say how far
one went, the proxy's own memory does; else the owner is told which is open until it is ended."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from html import unescape
from typing import Any

import pytest

from encrypted_records.model import ids, wire
from encrypted_records.model import roster as form
from encrypted_records.model.records import ManifestDelta
from encrypted_records.model.roster import RosterEntry
from encrypted_records.proxy.sharing import settling
from tests.cli.command import Ers
from tests.proxy.lies import LOG, cut, instead, of, on
from tests.proxy.sharing.people import Person
from tests.proxy.sharing.shared import Shared, numbers, refused
from tests.proxy.sharing.test_commits_of_others import added, kept_back
from tests.support.front import Asked, Lie, Reply, nothing
from tests.support.page_visits import logged_in
from tests.support.store import Store

ENDED = "a commit is of an epoch that had ended"


def problem(status: int, code: str, *paths: str) -> Reply:
    told: dict[str, Any] = {"type": "about:blank", "status": status, "code": code, "detail": "x"}
    if paths:
        told["errors"] = [{"code": code, "detail": f"{path} has moved"} for path in paths]
    kind = {"Content-Type": "application/problem+json"}
    return Reply(status, kind, json.dumps(told).encode())


def refusing(status: int, code: str) -> Lie:
    told = problem(status, code)
    return instead(LOG, status, told.body, "application/problem+json")


#: What an API answers that does not want to say where a log stands.
SILENCE: dict[str, Lie] = {
    "not found": refusing(404, "not_found"),
    "another log": refusing(409, "log_conflict"),
    "a failure": instead(LOG, 500, b"oops"),
    "an empty answer": cut(LOG, lambda _: b""),
    "a log without commits": on(
        LOG,
        of(
            ManifestDelta,
            lambda found: [replace_delta(one, version=0, entries=[]) for one in found],
        ),
    ),
}


def replace_delta(delta: ManifestDelta, **members: Any) -> ManifestDelta:
    found = {name: getattr(delta, name) for name in delta.__struct_fields__}
    return ManifestDelta(**(found | members))


@dataclass
class Scene:
    """``ada`` owns, and ``grace``, a writer, is about to be removed: with a commit that she signed
    in time and the API keeps."""

    shared: Shared
    ada: Store
    grace: Person
    reader: Person
    late: bytes

    @property
    def schema(self) -> bytes:
        return ids.from_text(self.ada.schema_id)

    def ends(self) -> list[tuple[int, int]]:
        """Epoch and version of each end of the schema's log."""
        roster = self.shared.team.view(self.shared.team.ada).roster
        return [(end.epoch, end.version) for end in roster.ends(self.schema)]

    def due(self) -> Any:
        answer = self.ada.proxy("GET", f"{self.shared.team.ada.account.organization}people/")
        return answer.json()["due"]

    def remove(self, owner: Store | None = None) -> Any:
        answer = self.shared.put_out(owner or self.ada, self.grace)
        assert answer.status == 200, answer.body
        return answer.json()

    def settle(self, owner: Store | None = None) -> Any:
        path = f"{self.shared.team.ada.account.organization}settle/"
        answer = (owner or self.ada).proxy("POST", path)
        assert answer.status == 200, answer.body
        return answer.json()

    def judged_late(self) -> str:
        """What a reader's proxy that comes new says of the log, where the API shows it with what it
        has kept; empty where it believes it."""
        own = self.reader.folder.parent
        fresh = shutil.copytree(own, self.shared.folder / ids.to_text(ids.new_id()))
        store = self.shared.proxy(self.reader, folder=fresh)
        with self.shared.fronts[self.reader.id].telling(added(self.late)):
            fault = store.proxy("GET", f"{self.ada.schema}log/").json()["fault"]
        return "" if fault is None else str(fault["detail"])

    def proxy_without_memory(self) -> Store:
        """Another proxy of the owner's, with the same keyring, that has seen no log."""
        own = self.shared.team.ada.folder.parent
        fresh = shutil.copytree(own, self.shared.folder / "fresh")
        for kept in ("heads", "ledgers"):
            (fresh / "proxy" / f"{kept}.sqlite3").unlink()
        return self.shared.proxy(self.shared.team.ada, folder=fresh)

    def invent(self, act: Callable[[Asked], Reply | None]) -> None:
        self.shared.fronts[self.shared.team.ada.id].invent = act

    def telling(self, lie: Lie) -> Any:
        return self.shared.fronts[self.shared.team.ada.id].telling(lie)


@pytest.fixture
def scene(shared: Shared) -> Scene:
    ada = shared.proxy(shared.team.ada)
    ada.ingest([{"n": 1}, {"n": 2}])
    grace = shared.person(form.WRITER)
    hers = shared.proxy(grace)
    hers.ingest([{"n": 3}])
    assert numbers(ada) == [1, 2, 3]
    reader = shared.person(form.READER)
    return Scene(shared, ada, grace, reader, kept_back(shared, grace, hers))


def changes_roster(asked: Asked) -> bool:
    return asked.method == "POST" and asked.path.endswith("/roster/")


def ends_in(asked: Asked) -> list[bytes]:
    """The schemas of which a request to change a roster states ends."""
    if not changes_roster(asked):
        return []
    entries = (one for one in wire.decode(asked.body) if isinstance(one, RosterEntry))
    contents = (form.read_entry(entry).content for entry in entries)
    return [
        end.schema
        for content in contents
        if isinstance(content, form.DatasetName)
        for end in content.ends
    ]


@pytest.mark.parametrize("lie", SILENCE.values(), ids=list(SILENCE))
def test_where_the_api_is_silent_the_log_ends_where_this_proxy_saw_it(
    scene: Scene, lie: Lie
) -> None:
    with scene.telling(lie):
        told = scene.remove()
    assert (told["rotated"], told["troubles"]) == (["People"], [])
    assert scene.ends() == [(2, 2)]
    assert scene.due() == []
    assert scene.judged_late() == ENDED
    with scene.telling(added(scene.late)):
        assert refused(scene.ada.ask()) == (422, "log_broken")
    scene.ada.ingest([{"n": 4}])
    assert numbers(scene.ada) == [1, 2, 3, 4]


def test_a_log_that_nobody_here_has_seen_stays_due_by_name_until_it_is_ended(
    scene: Scene,
) -> None:
    owner = scene.proxy_without_memory()
    with scene.telling(SILENCE["not found"]):
        told = scene.remove(owner)
        assert told["rotated"] == ["People"]
        (trouble,) = told["troubles"]
        assert (trouble["name"], trouble["code"]) == ("People/Adults", "log_open")
        assert "not_found" in trouble["detail"]
        assert [trouble["name"] for trouble in scene.settle(owner)["troubles"]] == ["People/Adults"]
    (due,) = scene.due()
    assert (due["name"], due["because"], due["schemas"]) == ("People", [], ["Adults"])
    # That it is told is all that there is: until then she adds to it together with the API.
    assert scene.ends() == []
    assert scene.judged_late() == ""

    told = scene.settle(owner)
    assert (told["rotated"], told["troubles"]) == ([], [])
    assert scene.ends() == [(2, 2)]
    assert scene.due() == []
    assert scene.judged_late() == ENDED
    scene.ada.ingest([{"n": 4}])
    assert numbers(scene.ada) == numbers(owner) == [1, 2, 3, 4]


def test_a_command_that_leaves_a_log_open_names_it_and_does_not_exit_with_0(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    owner = scene.proxy_without_memory()
    ers = Ers(
        monkeypatch,
        capsys,
        ERS_PROXY_URL=owner.service.proxy_url,
        ERS_EMAIL=owner.account.email,
        ERS_PASSWORD=owner.account.password,
    )
    with scene.telling(SILENCE["not found"]):
        scene.remove(owner)
        said = ers("share", "settle")
    assert said.code == 4
    assert "People/Adults: " in said.err
    assert "(log_open)" in said.err
    assert "There are no pending changes" not in said.out
    assert "There are no pending changes" in ers.done("share", "settle").out


def test_the_pages_name_a_log_that_is_open(scene: Scene) -> None:
    owner = scene.proxy_without_memory()
    browser = logged_in(owner.service, owner.account)
    keys = f"/datasets/{scene.shared.team.made['id']}/keys/"
    people = scene.shared.team.ada.account.organization.removeprefix("/api")

    def read(path: str, **form: str) -> str:
        answer = browser.visit(path, **form)
        assert answer.status == 200, answer.body
        return unescape(re.sub(r"\s+", " ", answer.body.decode()))

    with scene.telling(SILENCE["not found"]):
        rotated = read(keys, do="rotate")
        assert "People/Adults</bdi></strong>: Members who lost the right" in rotated
        shown = read(people)
    assert "log_open" in shown
    assert "may still add to <bdi>Adults</bdi>" in shown
    assert "log_open" not in read(people) + read(keys)


def test_what_others_stored_while_the_api_was_silent_is_not_lost(scene: Scene) -> None:
    writer = scene.shared.proxy(scene.shared.person(form.WRITER))
    writer.ingest([{"n": 4}])
    with scene.telling(SILENCE["not found"]):
        told = scene.remove()
    # An honest API refuses the end that this proxy remembers: the log has gone on.
    assert told["rotated"] == ["People"]
    assert [(trouble["name"], trouble["code"]) for trouble in told["troubles"]] == [
        ("People/Adults", "log_open")
    ]
    assert scene.settle()["troubles"] == []
    assert scene.ends() == [(2, 3)]
    writer.ingest([{"n": 5}])
    assert numbers(scene.ada) == numbers(writer) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("times", [1, 4])
def test_a_log_that_moves_each_time_is_ended_once_the_epoch_has_begun(
    scene: Scene, times: int
) -> None:
    moves = 0
    writer = scene.shared.proxy(scene.shared.person(form.WRITER))

    def store_first(asked: Asked) -> Reply | None:
        nonlocal moves
        if ends_in(asked) and moves < times:
            moves += 1
            writer.send([{"n": 10 + moves}])
        return None

    scene.invent(store_first)
    told = scene.remove()
    assert (told["rotated"], told["troubles"]) == (["People"], [])
    # After three times the epoch begins without the end, and then the log moves no more.
    assert moves == times
    stored = [10 + n for n in range(1, min(times, 3) + 1)]
    assert numbers(scene.ada)[:3] == [1, 2, 3] and set(stored) <= set(numbers(scene.ada))
    assert scene.ends() == [(2, 2 + len(stored))]
    assert scene.due() == []
    assert scene.judged_late() != ""


@pytest.mark.parametrize("times", [1, 4])
def test_an_api_that_says_a_log_had_moved_does_not_keep_it_open(scene: Scene, times: int) -> None:
    said = 0

    def moved(asked: Asked) -> Reply | None:
        nonlocal said
        if not ends_in(asked) or said >= times:
            return None
        said += 1
        return problem(409, "log_moved", scene.ada.schema)

    scene.invent(moved)
    told = scene.remove()
    assert (told["rotated"], told["troubles"], said) == (["People"], [], times)
    assert scene.ends() == [(2, 2)]
    assert scene.judged_late() == ENDED


def test_an_api_that_says_so_for_good_has_the_owner_told_by_name(scene: Scene) -> None:
    scene.invent(
        lambda asked: problem(409, "log_moved", scene.ada.schema) if ends_in(asked) else None
    )
    told = scene.remove()
    assert told["rotated"] == ["People"]
    assert [(trouble["name"], trouble["code"]) for trouble in told["troubles"]] == [
        ("People/Adults", "log_open")
    ]
    assert [one["schemas"] for one in scene.due()] == [["Adults"]]
    scene.invent(nothing)
    assert scene.settle()["troubles"] == []
    assert (scene.ends(), scene.due()) == ([(2, 2)], [])


def test_more_logs_than_an_entry_has_room_for_are_ended_by_further_entries(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [replace(scene.ada, schema=scene.shared.new_schema(f"More {n}")) for n in range(3)]
    for at, store in enumerate(others):
        store.ingest([{"n": 20 + at}])
    monkeypatch.setattr(settling, "_MOST_ENDS", 2)
    told = scene.remove()
    assert (told["rotated"], told["troubles"]) == (["People"], [])
    roster = scene.shared.team.view(scene.shared.team.ada).roster
    schemas = [scene.schema, *(ids.from_text(other.schema_id) for other in others)]
    assert [[end.epoch for end in roster.ends(schema)] for schema in schemas] == [[2]] * 4
    assert len({end.number for schema in schemas for end in roster.ends(schema)}) == 2
    assert scene.due() == []


def test_a_schema_that_was_deleted_and_is_still_placed_is_named_and_ends_with_its_name(
    scene: Scene,
) -> None:
    gone = replace(scene.ada, schema=scene.shared.new_schema("Gone"))
    gone.ingest([{"n": 9}])
    scene.invent(lambda asked: Reply(503, {}, b"") if changes_roster(asked) else None)
    assert gone.proxy("DELETE", f"{gone.schema}?cascade=true").status == 204
    scene.invent(nothing)
    told = scene.remove()
    assert [(trouble["name"], trouble["code"]) for trouble in told["troubles"]] == [
        ("People/Gone", "log_open")
    ]
    assert "delete it once more" in told["troubles"][0]["hint"]
    assert gone.proxy("DELETE", gone.schema).status == 404
    assert scene.settle()["troubles"] == []
    assert scene.due() == []
