"""Whether our answer to a question and that of the same records in plaintext say the same."""

from __future__ import annotations

from typing import Any

from bench.support import people

Body = dict[str, Any]


def compare(body: Body, ours: Any, theirs: Any, *, aggregates: bool) -> None:
    """Both answers are alike, as far as they are determined."""
    if aggregates:
        assert _values(body, ours) == theirs["rows"], (body, ours, theirs)
        return
    ours, theirs = ([row["data"] for row in answer["results"]] for answer in (ours, theirs))
    assert len(ours) == len(theirs), (body, len(ours), len(theirs))
    fields = [name.removeprefix("-") for name in body.get("order_by", [])]
    assert _cut(ours, fields) == _cut(theirs, fields), body
    if len(ours) < body["limit"]:
        assert _as_set(ours) == _as_set(theirs), body


def _cut(rows: list[Body], fields: list[str]) -> list[list[Any]]:
    return [[row[name] for name in fields] for row in rows]


def _as_set(rows: list[Body]) -> set[tuple[Any, ...]]:
    return {tuple(row[name] for name in people.FIELDS) for row in rows}


def _values(body: Body, ours: Any) -> list[list[Any]]:
    """Our answer as the rows of an SQL statement."""

    def flat(measures: list[Body]) -> list[Any]:
        return [
            measure["values"][0]["value"] if "values" in measure else measure["value"]
            for measure in measures
        ]

    if "group_by" not in body:
        return [flat(ours["measures"])]
    return [[*group["group"].values(), *flat(group["measures"])] for group in ours["groups"]]
