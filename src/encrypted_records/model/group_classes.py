"""Length classes of the fields of several groups, taken together."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from encrypted_records.model.ciphertext_lengths import LeastClass
from encrypted_records.model.records import Group


def greatest_classes(groups: Iterable[Group]) -> Group | None:
    """A group that states for each field the greatest class that it had in one of these: what is
    sealed again gets no lower one. None without any."""
    greatest: dict[int, LeastClass] = {}
    first: Group | None = None
    for group in groups:
        first = first or group
        for number, stated in zip(group.fields, group.classes, strict=True):
            had = greatest.get(number)
            if had is None or had.length < stated.length:
                greatest[number] = stated
    if first is None:
        return None
    return msgspec.structs.replace(first, fields=list(greatest), classes=list(greatest.values()))
