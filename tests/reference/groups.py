"""Sections 6, 7.3 and 7.7: which groups and segments a log has behind each commit, and which rows
are dead. Who commits, keys, and what definitions allow are looked at elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.reference import Refused
from tests.reference.msgpack import unpack

#: A group and where it begins.
Places = list[tuple[bytes, int]]


def broken() -> Refused:
    return Refused("log_broken")


@dataclass
class State:
    #: in the order of the log, with their counts
    groups: dict[bytes, int] = field(default_factory=dict)
    #: field id to least class, by group
    classes: dict[bytes, dict[int, int]] = field(default_factory=dict)
    #: ordinals by group
    dead: dict[bytes, set[int]] = field(default_factory=dict)
    segments: dict[bytes, Places] = field(default_factory=dict)

    def rows(self) -> list[tuple[bytes, int]]:
        """All rows, dead ones too, in the order of the log."""
        return [(uid, at) for uid, count in self.groups.items() for at in range(count)]

    def local(self, segment: bytes) -> list[tuple[bytes, int]]:
        """The rows of a segment by local ordinal."""
        return [(uid, at) for uid, _ in self.segments[segment] for at in range(self.groups[uid])]


def follow(bodies: list[bytes]) -> list[State]:
    """The states behind each commit.

    Raises:
        Refused: ``log_broken``.
    """
    states = [State()]
    for body in bodies:
        states.append(_after(states[-1], unpack(body)))
    return states[1:]


def _after(before: State, parts: list[Any]) -> State:
    text, groups, segments, killed, replaced, requests, exact, ended, holes = (
        parts[9],
        *parts[15:23],
    )
    added = {group[0]: group[2] for group in groups}
    if len(added) != len(groups) or added.keys() & before.groups.keys():
        raise broken()
    if len(set(replaced)) != len(replaced) or not set(replaced) <= before.segments.keys():
        raise broken()
    classes = {
        group[0]: {f: c[0] for f, c in zip(group[3], group[4], strict=True)} for group in groups
    }
    if ended:
        if requests:
            raise broken()
        after = _stand(before, added, classes, ended, _rows(killed, added), _rows(holes, added))
    else:
        if holes:
            raise broken()
        died = _rows(killed, before.groups)
        if any(rows & before.dead.get(uid, set()) for uid, rows in died.items()):
            raise broken()
        dead = {uid: set(rows) for uid, rows in before.dead.items()}
        for uid, rows in died.items():
            dead.setdefault(uid, set()).update(rows)
        after = State({**before.groups, **added}, {**before.classes, **classes}, dead)
    if ended and not replaced:
        if segments or exact or text or len(added) != 1:
            raise broken()
        after.segments = _compact(before, ended, *added)
        return after
    after.segments = {
        uid: places for uid, places in before.segments.items() if uid not in set(replaced)
    }
    for segment in segments:
        if segment[0] in before.segments or segment[0] in after.segments:
            raise broken()
        after.segments[segment[0]] = [(uid, base) for uid, base in segment[5]]
        _check_segment(after, segment)
    covered = [uid for places in after.segments.values() for uid, _ in places]
    if sorted(covered) != sorted(after.groups):
        raise broken()
    return after


def _rows(runs: list[Any], counts: dict[bytes, int]) -> dict[bytes, set[int]]:
    found: dict[bytes, set[int]] = {}
    for uid, own in runs:
        end = -1
        if uid in found or not own:
            raise broken()
        found[uid] = set()
        for first, count in own:
            if first <= end or first + count > counts.get(uid, 0):
                raise broken()
            found[uid] |= set(range(first, first + count))
            end = first + count
    return found


def _stand(
    before: State,
    added: dict[bytes, int],
    classes: dict[bytes, dict[int, int]],
    ended: list[bytes],
    killed: dict[bytes, set[int]],
    holes: dict[bytes, set[int]],
) -> State:
    if [uid for uid in before.groups if uid in set(ended)] != ended:
        raise broken()
    every = before.rows()
    numbers = [at for at, (uid, _) in enumerate(every) if uid in set(ended)]
    if sum(added.values()) != len(numbers):
        raise broken()
    first: dict[int, bytes] = {}
    dead: dict[bytes, set[int]] = {}
    for uid, count in added.items():
        own, numbers = numbers[:count], numbers[count:]
        if own != list(range(own[0], own[0] + count)):
            raise broken()
        first[own[0]] = uid
        rows = [every[at] for at in own]
        gone = {at for at, (old, o) in enumerate(rows) if o in before.dead.get(old, set())}
        hidden, died = holes.get(uid, set()), killed.get(uid, set())
        if hidden & died or hidden | died != gone:
            raise broken()
        if gone:
            dead[uid] = gone
        for old in {old for old, _ in rows}:
            had = before.classes[old]
            if any(length < had[f] for f, length in classes[uid].items() if f in had):
                raise broken()
    ordered: dict[bytes, int] = {}
    for at, (uid, _) in enumerate(every):
        if at in first:
            ordered[first[at]] = added[first[at]]
        if uid not in set(ended):
            ordered[uid] = before.groups[uid]
    stay = before.groups.keys() - set(ended)
    return State(
        ordered,
        {uid: own for uid, own in before.classes.items() if uid in stay} | classes,
        {uid: rows for uid, rows in before.dead.items() if uid in stay} | dead,
    )


def _compact(before: State, ended: list[bytes], new: bytes) -> dict[bytes, Places]:
    """Section 7.7.2: the segments behind a compaction."""
    for segment, places in before.segments.items():
        if ended[0] not in dict(places):
            continue
        local = before.local(segment)
        at = [number for number, (uid, _) in enumerate(local) if uid in set(ended)]
        wanted = [(uid, o) for uid in ended for o in range(before.groups[uid])]
        if [local[number] for number in at] != wanted or at != list(range(at[0], at[0] + len(at))):
            raise broken()
        kept = [place for place in places if place[0] not in set(ended)]
        return {**before.segments, segment: sorted([*kept, (new, at[0])], key=lambda one: one[1])}
    raise broken()


def _check_segment(after: State, one: list[Any]) -> None:
    base = gone = 0
    for uid, stated in one[5]:
        if uid not in after.groups or stated != base:
            raise broken()
        base += after.groups[uid]
        gone += len(after.dead.get(uid, set()))
    if one[3] + one[4] != base or one[4] > gone:
        raise broken()
