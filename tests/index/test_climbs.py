"""A question goes down through the files that answer it, and seldom calls back up.

A module stands above all that it imports. A *climb* is a pair of modules of which the lower one
calls a function of the higher one, such as a callback; that a generator is resumed by what is below
it is no climb, since so all questions are asked. Counted are the calls that questions make, and not
those that the code could make.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from graphlib import TopologicalSorter
from types import FrameType
from typing import Any

import pytest
from grimp import build_graph

from encrypted_records.index.query.aggregate import measure
from encrypted_records.index.query.asking import Sizes
from encrypted_records.index.query.distinct_values import collect_values
from encrypted_records.model.aggregations import parse_aggregation
from encrypted_records.model.queries import parse_query
from tests.index.executor import Executor
from tests.index.test_counts_and_first_rows import LARGE, LONG, MANY, WITH_KEYS, made

#: Of any one question.
MOST_CLIMBS = 5
DECIDING = "encrypted_records.index.query."
Climb = tuple[str, str]


@cache
def floors() -> dict[str, int]:
    graph = build_graph("encrypted_records", exclude_type_checking_imports=True)
    below = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    found: dict[str, int] = {}
    for name in TopologicalSorter(below).static_order():
        found[name] = 1 + max((found[other] for other in below[name]), default=0)
    return found


def climb_of(frame: FrameType) -> Climb | None:
    """The climb that a call is, if it is one into a module that decides."""
    every, callee = floors(), frame.f_globals.get("__name__", "")
    if not callee.startswith(DECIDING) or frame.f_code.co_flags & inspect.CO_GENERATOR:
        return None
    caller = frame.f_back
    # What the standard library calls for a module, that module calls.
    while caller is not None and caller.f_globals.get("__name__") not in every:
        if caller.f_globals["__name__"].startswith("tests."):
            return None
        caller = caller.f_back
    name = "" if caller is None else caller.f_globals["__name__"]
    return (name, callee) if name and every[name] < every[callee] else None


@contextmanager
def noting_climbs() -> Iterator[set[Climb]]:
    found: set[Climb] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and (climb := climb_of(frame)):
            found.add(climb)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(before)


Ask = Callable[[Executor], Any]


def search(where: Any, **more: Any) -> Ask:
    """Two pages."""
    return lambda executor: executor.pages({"where": where, "limit": 10, **more}, most=2)


def aggregate(where: Any, **more: Any) -> Ask:
    def ask(executor: Executor) -> Any:
        body = {"where": where, "measures": [{"op": "count"}], **more}
        aggregation = parse_aggregation(body, executor.space.definition)
        condition = executor.condition(aggregation.where)
        return executor.run(measure(executor.space, condition, aggregation))

    return ask


def join(where: Any) -> Ask:
    def ask(executor: Executor) -> Any:
        space = executor.space
        condition = executor.condition(parse_query({"where": where}, space.definition).where)
        spec, stored = space.definition.fields["name"], space.snapshot.stored
        return executor.run(collect_values(space, condition, spec, "/where", stored=stored))

    return ask


HALF = {"field": "number", "op": "between", "value": [MANY // 2, 2 * MANY]}
STATE = {"field": "state", "op": "eq", "value": "s2"}
PART = {"field": "name", "op": "contains", "value": "07"}
TWO = {"and": [HALF, {"field": "amount", "op": "ge", "value": 250}]}
EITHER = {"or": [STATE, {"not": HALF}]}
MEASURES = [{"op": op, "field": "amount"} for op in ("min", "sum", "avg", "stddev")]
#: The kinds of ``bench.question_costs``, and others.
QUESTIONS: dict[str, Ask] = {
    "equality": search({"field": "name", "op": "eq", "value": "n007"}),
    "a quarter, two pages": search(STATE),
    "a half, with its count": search(HALF, count=True),
    "either, with its count": search(EITHER, count=True),
    "part of a text": search(PART),
    "a long text": search({"field": "name", "op": "ge", "value": LONG + "n2"}, count=True),
    "two ranges, by a number": search(TWO, order_by=["-amount"]),
    "a quarter, by two fields": search(STATE, order_by=["amount", "-number"]),
    "part of a text, by two fields": search(PART, order_by=["state", "-number"], offset=3),
    "all, by a text": search(None, order_by=["-name", "state"]),
    "count of two ranges": aggregate(TWO),
    "count of either": aggregate(EITHER),
    "count of a part of a text": aggregate(PART),
    "four measures of a half": aggregate(HALF, measures=MEASURES),
    "a percentile of all": aggregate(
        None, measures=[{"op": "percentile", "field": "amount", "p": [50]}]
    ),
    "groups of a half": aggregate(HALF, group_by=["state"]),
    "values for a semi-join": join(EITHER),
}
SIZES = {"small": Sizes(), "large": LARGE, "large, with keys": replace(LARGE, reading=WITH_KEYS)}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS)
def test_no_question_climbs_often(ask: Ask, sizes: Sizes) -> None:
    world, _ = made()
    executor = Executor(world, sizes)
    with noting_climbs() as climbs:
        ask(executor)
    assert executor.steps
    assert len(climbs) <= MOST_CLIMBS, sorted(climbs)


def test_a_callback_into_a_higher_module_is_a_climb() -> None:
    """What loops until nothing is missing asks the condition again and again."""
    world, _ = made()
    with noting_climbs() as climbs:
        search(HALF)(Executor(world))
    assert (DECIDING + "asking", DECIDING + "condition") in climbs
