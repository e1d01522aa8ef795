"""The keyword ``unique`` at the root of a definition."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

#: Sets of a definition, and fields of a set.
MAX_SETS = 16
MAX_SET_FIELDS = 8

Sets = tuple[tuple[str, ...], ...]
#: What is wrong, and where below ``unique``.
Flaws = list[tuple[str, tuple[str, ...]]]


def read_sets(listed: Any, fields: Collection[str]) -> tuple[Sets, Flaws]:
    """The sets in their one order, and what is wrong with them."""
    if not isinstance(listed, list) or len(listed) > MAX_SETS:
        return (), [(f"expected an array of up to {MAX_SETS} arrays of field names", ())]
    flaws: Flaws = []
    sets: set[tuple[str, ...]] = set()
    for position, names in enumerate(listed):
        at = (str(position),)
        if not isinstance(names, list) or not 1 <= len(names) <= MAX_SET_FIELDS:
            flaws.append((f"expected an array of 1 to {MAX_SET_FIELDS} field names", at))
            continue
        unknown = [
            (*at, str(place))
            for place, name in enumerate(names)
            if not isinstance(name, str) or name not in fields
        ]
        flaws += [("names no field", path) for path in unknown]
        if unknown:
            continue
        one = tuple(sorted(names))
        if len(set(one)) < len(one):
            flaws.append(("names a field twice", at))
        elif one in sets:
            flaws.append(("is there twice", at))
        sets.add(one)
    return tuple(sorted(sets)), flaws
