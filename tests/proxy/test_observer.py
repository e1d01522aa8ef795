"""An API that watches and attacks with what it sees (``bench/watching``) guesses no better than by
the most frequent value.

docs/decisions/watching.md has the figures of ``python -m bench.observer``.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.observer import judged
from bench.watching import census, imagined, session
from bench.watching.imagined import EXACTLY, Manner
from bench.watching.knowledge import Knowledge
from bench.watching.score import Truth
from tests.support.front import running_front
from tests.support.proxies import running_proxy
from tests.support.service import Service
from tests.support.store import new_store

RECORDS, OTHERS, SEARCHES = 3000, 3000, 200


@pytest.fixture(scope="module", params=[census.PLAIN, census.FORMATTED], ids=["plain", "formatted"])
def found(request: pytest.FixtureRequest) -> census.Census:
    """Fields as they always were; and dates, instants, uuids, booleans, and words of a note."""
    read = census.read(None, RECORDS, OTHERS, random.Random(3))
    return read if request.param is census.PLAIN else read.formatted()


@pytest.fixture(scope="module")
def draws(found: census.Census) -> list[int]:
    return census.drawn(found.questions, SEARCHES, random.Random(3))


@pytest.fixture(scope="module")
def truth(found: census.Census, draws: list[int]) -> Truth:
    knowledge = Knowledge(census.length_classes(found.stored, found.kind), found.others, found.kind)
    return Truth(found, knowledge, draws)


def test_the_attack_works_on_a_proxy_that_asks_for_exactly_its_rows(truth: Truth) -> None:
    events = imagined.events(truth.census, truth.draws, EXACTLY)
    seen = judged(truth, EXACTLY, events)
    assert seen.recognised == seen.searches - seen.different > 0
    assert seen.exact > seen.sets / 3
    assert seen.claimed.right > 1.5 * max(seen.claimed.mode, seen.claimed.lengths)


@pytest.mark.parametrize("found", [census.FORMATTED], indirect=True, ids=["formatted"])
def test_whoever_watches_this_proxy_does_no_better_than_one_who_guesses(
    services: Callable[[str], Service],
    found: census.Census,
    draws: list[int],
    truth: Truth,
    tmp_path: Path,
) -> None:
    service = services("sqlite")
    with (
        running_front(service.base_url) as front,
        running_proxy(front.url, tmp_path) as proxy,
    ):
        there = Service(
            service.process, service.base_url, proxy.url, service.data_dir, service.log_file
        )
        watched = session.watched(new_store(there, found.kind.definition), front, found)
        classes = census.length_classes(found.stored, found.kind)
        assert (session.length_classes(watched) == classes).all()
        events = session.searched(watched, found, draws)
    repeated = [at in draws[:time] for time, at in enumerate(draws)]
    for seen, again in zip(events, repeated, strict=True):
        assert not again or not (len(seen.rows) or seen.pages)
    score = judged(truth, Manner(), events)
    assert sum(len(seen.rows) for seen in events) <= RECORDS
    assert score.silent > SEARCHES * 0.7
    assert score.exact < score.sets / 5
    assert score.claimed.right <= 1.5 * max(score.claimed.mode, score.claimed.lengths)


def test_statements_of_sql_show_columns_and_no_rows(
    services: Callable[[str], Service], tmp_path: Path
) -> None:
    """The questions that searches ask, as SELECT of all columns: the attack has less to go by. Of
    the fields as they always were, while searches ask for the others."""
    found = census.read(None, RECORDS, OTHERS, random.Random(3))
    draws = census.drawn(found.questions, SEARCHES // 4, random.Random(3))
    service = services("sqlite")
    with (
        running_front(service.base_url) as front,
        running_proxy(front.url, tmp_path) as proxy,
    ):
        there = Service(
            service.process, service.base_url, proxy.url, service.data_dir, service.log_file
        )
        watched = session.watched(new_store(there, found.kind.definition), front, found)
        events = asyncio.run(session.selected(watched, found, draws))
    assert sum(len(seen.rows) for seen in events) == 0
    repeated = [at in draws[:time] for time, at in enumerate(draws)]
    assert not any(seen.pages for seen, again in zip(events, repeated, strict=True) if again)
    knowledge = Knowledge(census.length_classes(found.stored, found.kind), found.others, found.kind)
    score = judged(Truth(found, knowledge, draws), Manner(), events)
    assert score.silent == len(draws)
    assert score.claimed.right <= max(score.claimed.mode, score.claimed.lengths)


def test_a_single_search_of_a_proxy_that_holds_nothing_tells_no_cells_either(truth: Truth) -> None:
    """Its weakest moment: what it asks for first, nothing of which it had."""
    manner = Manner(apart=True)
    seen = judged(truth, manner, imagined.events(truth.census, truth.draws, manner))
    assert seen.exact < seen.sets / 3
    assert seen.claimed.right <= 1.5 * max(seen.claimed.mode, seen.claimed.lengths)
