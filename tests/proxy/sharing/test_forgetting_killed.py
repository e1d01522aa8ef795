"""A proxy is killed right after each of its steps, before it hears of it, while it seals a dataset
again, has what was before erased, and has the older keys forgotten; a new one on its folder ends
it."""

from __future__ import annotations

import re
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path

import pytest

from encrypted_records.model import ids
from tests.proxy.sharing.shared import Shared
from tests.proxy.sharing.test_forgetting import LONG, ask, in_files_of_api, rotate
from tests.proxy.test_erasing import index_bytes, sealed_fields
from tests.proxy.test_reseal import begin, groups
from tests.proxy.test_reseal_races import Killing, proxy_of_its_own
from tests.support.eventually import eventually
from tests.support.front import Asked, Reply, honest, nothing
from tests.support.service import Service
from tests.support.sides import running_side
from tests.support.store import Store

#: What a proxy sends to read: killing it there is killing it before the next change.
READS = ("/pages/", "/rows/", "/names/", "/digests/", "/search/", "/token/")
_IDS = re.compile(rf"/(?:{ids.PATTERN}|[0-9a-f]{{32}}|[0-9a-f-]{{36}})(?=/)")


@pytest.fixture
def api(services: Callable[[str], Service]) -> Service:
    return services("sqlite")


def see_through(store: Store, shared: Shared) -> None:
    """Ask for all of it until it is done, as somebody does who repeats the command."""

    def is_done() -> bool:
        answer = ask(store, shared)
        if answer.status == 409:
            assert answer.json()["code"] == "epoch_in_use", answer.body
            begun = begin(store)
            assert begun.status == 202 or begun.json()["code"] == "reseal_under_way", begun.body
        return answer.status == 200

    eventually(is_done, "all of it is forgotten", pause=0.1)


def kind_of(asked: Asked) -> str:
    """The path of a request that changes something, without what names a thing."""
    return "" if asked.method == "GET" else _IDS.sub("/*", asked.path.partition("?")[0])


class KillingAt(Killing):
    """At a request of the kind that is its ``end``."""

    def is_meant(self, asked: Asked) -> bool:
        return kind_of(asked) == self.end


def test_a_kill_at_any_step_is_made_up_for_by_asking_again(shared: Shared, tmp_path: Path) -> None:
    team = shared.team
    ada = shared.proxy(team.ada)
    named = ada.ingest([{"n": n, "s": f"{LONG}{n % 2}"} for n in range(6)])
    front = shared.fronts[team.ada.id]
    kinds: list[str] = []

    def note(asked: Asked) -> Reply | None:
        kinds.append(kind_of(asked))
        return None

    rotate(ada, shared)
    front.invent = note
    see_through(ada, shared)
    steps = [one for one in dict.fromkeys(kinds) if one and not one.endswith(READS)]
    assert [one.split("/")[-2] for one in steps][-2:] == ["erasure", "roster"], steps
    front.invent = nothing

    own, settings = proxy_of_its_own(ada, front, tmp_path, of=team.ada.service)
    epoch, sealed = 2, list[bytes]()
    # Before a step is what it is right after the one before it.
    for kind in (*steps, ""):
        with running_side("proxy", settings, own.service.proxy_url, tmp_path / "log") as process:
            killing = KillingAt(process, kind, "after")
            if epoch > 2:
                see_through(own, shared)  # what the one before it left
                assert in_files_of_api(shared, sealed) == set()
                assert {key for _, key in groups(ada)} == {epoch}
                assert own.found() == ada.found() == named
            if not kind:
                break
            sealed = [piece for one in named for piece in sealed_fields(ada, one)]
            sealed += index_bytes(ada)
            rotate(own, shared)
            epoch += 1
            front.invent, front.lie = killing.before, killing.after
            with pytest.raises((OSError, HTTPException)):
                see_through(own, shared)
            front.invent, front.lie = nothing, honest
            assert killing.done, kind
    assert sorted(team.keys(team.ada)) == [epoch]
