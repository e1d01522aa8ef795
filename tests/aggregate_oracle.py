"""What an aggregate means, decided on plain records with fractions: the slow and obvious way.

Written from docs/http-api.md and not from the package, which it does not import. Numbers are
Fractions, texts are in NFC; a result has the members that its measure has in an answer.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from fractions import Fraction
from typing import Any

from tests.oracle import Field, nfc, rounded

Record = Mapping[str, Any]


def value_of(record: Record, name: str, fields: Mapping[str, Field]) -> Any:
    """The value as it is compared; None where the record has none."""
    value = record.get(name)
    if value is None:
        return None
    return nfc(value) if fields[name]["type"] == "string" else rounded(fields[name], value)


def measured(
    asked: Mapping[str, Any], records: Sequence[Record], fields: Mapping[str, Field]
) -> dict[str, Any]:
    name = asked.get("field")
    if name is None:
        return {"op": "count", "value": len(records)}
    held = [value_of(record, name, fields) for record in records]
    values = sorted(value for value in held if value is not None)
    head = {"op": asked["op"], "field": name}
    match asked["op"]:
        case "count":
            return head | {"value": len(values)}
        case "min":
            return head | {"value": values[0] if values else None}
        case "max":
            return head | {"value": values[-1] if values else None}
        case "sum":
            return head | {"value": sum(values) if values else None}
        case "avg":
            return head | {"value": average(values, fields[name])}
        case "variance" | "stddev":
            return head | {"value": spread(values, fields[name], asked["op"])}
        case "percentile":
            shares = asked["p"] if isinstance(asked["p"], list) else [asked["p"]]
            return head | {"values": [{"p": p, "value": percentile(values, p)} for p in shares]}
        case "histogram":
            return head | histogram(values, asked, fields[name])
        case "distinct":
            return head | distinct(values, asked)
    raise AssertionError(asked)


def average(values: Sequence[Fraction], field: Field) -> Fraction | None:
    """Six decimals more than the field's, rounded half to even."""
    if not values:
        return None
    scale = 10 ** (int(field.get("precision", 0)) + 6)
    return Fraction(round(sum(values) / len(values) * scale), scale)


def spread(values: Sequence[Fraction], field: Field, op: str) -> Fraction | None:
    """The variance of a sample; six decimals more than the unit has, rounded half to even."""
    if len(values) < 2:
        return None
    mean = Fraction(sum(values)) / len(values)
    squares = [(value - mean) ** 2 for value in values]
    variance = Fraction(sum(squares)) / (len(values) - 1)
    precision = int(field.get("precision", 0))
    if op == "variance":
        scale = 10 ** (2 * precision + 6)
        return Fraction(round(variance * scale), scale)
    with localcontext(prec=200, rounding=ROUND_HALF_EVEN):
        root = (Decimal(variance.numerator) / variance.denominator).sqrt()
        return Fraction(root.quantize(Decimal(1).scaleb(-precision - 6)))


def percentile(values: Sequence[Fraction], p: Any) -> Fraction | None:
    """The lowest value that at least p percent of all do not exceed."""
    for value in values:
        if Fraction(sum(other <= value for other in values), len(values)) * 100 >= Fraction(p):
            return value
    return None


def histogram(values: Sequence[Fraction], asked: Mapping[str, Any], field: Field) -> dict[str, Any]:
    step = Fraction(1, 10 ** int(field.get("precision", 0)))
    if "bins" in asked:
        if not values:
            return {"below": 0, "above": 0, "bins": []}
        points = (values[-1] - values[0]) / step + 1
        width = -(-points // asked["bins"]) * step
        starts: list[Fraction] = []
        while not starts or starts[-1] + width <= values[-1]:
            starts.append(values[0] + width * len(starts))
        bins = [(start, min(start + width - step, values[-1])) for start in starts]
        return {"below": 0, "above": 0, "bins": [_bin(values, *one, last=True) for one in bins]}
    bounds = asked["bounds"]
    pairs = list(itertools.pairwise(bounds))
    return {
        "below": sum(value < bounds[0] for value in values),
        "above": sum(value > bounds[-1] for value in values),
        "bins": [_bin(values, *pair, last=pair is pairs[-1]) for pair in pairs],
    }


def _bin(values: Sequence[Fraction], start: Any, end: Any, *, last: bool) -> dict[str, Any]:
    count = sum(start <= value < end or (last and value == end) for value in values)
    return {"from": start, "to": end, "count": count}


def distinct(values: Sequence[Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    counts = Counter(values)
    listed = in_list_order(counts, asked.get("order", "value"), lambda value: value)
    shown = listed[: asked.get("limit", 100)]
    return {
        "count": len(counts),
        "values": [{"value": value, "count": counts[value]} for value in shown],
    }


def in_list_order(counts: Mapping[Any, int], order: str, key: Any) -> list[Any]:
    by_value = sorted(counts, key=key)
    if order == "value":
        return by_value
    if order == "-value":
        return by_value[::-1]
    return sorted(by_value, key=lambda one: counts[one], reverse=order == "-count")


def grouped(
    asked: Mapping[str, Any], records: Sequence[Record], fields: Mapping[str, Field]
) -> dict[str, Any]:
    """An aggregate with ``group_by``, as it is answered."""
    names = asked["group_by"]
    members: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        place = tuple(value_of(record, name, fields) for name in names)
        members.setdefault(place, []).append(record)
    counts = {place: len(own) for place, own in members.items()}
    listed = in_list_order(counts, asked.get("order", "value"), _absent_first)
    return {
        "total": len(members),
        "groups": [
            {
                "group": dict(zip(names, place, strict=True)),
                "measures": [
                    measured(measure, members[place], fields) for measure in asked["measures"]
                ],
            }
            for place in listed[: asked.get("limit", 100)]
        ],
    }


def _absent_first(place: tuple[Any, ...]) -> list[tuple[bool, Any]]:
    return [(value is not None, 0 if value is None else value) for value in place]
