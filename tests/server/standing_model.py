"""A plain model of a schema whose groups end, and the commits that a writer makes of it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import msgspec

from encrypted_records.model import digests
from encrypted_records.model.ciphertext_lengths import LeastClass
from encrypted_records.model.records import (
    CommitUpload,
    Group,
    Page,
    RowBatch,
    RowRef,
    SealedRow,
    Segment,
)
from tests.server.writer import CLASSES, Writer, group_of, pages_of, person, salt_of, segment_over


@dataclass
class Slot:
    """An ordinal: a row that lives or is dead, or none."""

    row: SealedRow | None
    lives: bool = True


@dataclass
class Held:
    uid: bytes
    slots: list[Slot]

    @property
    def rows(self) -> list[tuple[RowRef, Slot]]:
        return [(RowRef(self.uid, at), slot) for at, slot in enumerate(self.slots)]

    @property
    def dead(self) -> int:
        return sum(not slot.lives for slot in self.slots)


@dataclass
class New:
    """Groups that stand for others, with all that their commit brings of them."""

    ended: list[bytes]
    held: list[Held]
    groups: list[Group]
    batches: list[RowBatch]
    holes: list[RowRef]
    killed: list[RowRef]
    segment: Segment
    replaced: list[bytes]
    #: by old group, of all, the first of whose rows is its first one
    places: list[int]

    def at(self, place: int) -> list[Held]:
        return [one for one, own in zip(self.held, self.places, strict=True) if own == place]

    @property
    def pages(self) -> list[Page]:
        return pages_of(self.segment)

    def members(self) -> dict[str, Any]:
        return {
            "groups": self.groups,
            "segments": [self.segment],
            "rows": self.batches,
            "pages": self.pages,
            "killed": self.killed,
            "replaced": self.replaced,
            "ended": self.ended,
            "holes": self.holes,
        }


@dataclass
class Model:
    writer: Writer
    chance: random.Random = field(default_factory=lambda: random.Random(1))
    groups: list[Held] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)

    def live(self) -> list[tuple[RowRef, Slot]]:
        return [(ref, slot) for group in self.groups for ref, slot in group.rows if slot.lives]

    def add(self, rows: Sequence[SealedRow], **more: Any) -> CommitUpload:
        group = group_of(rows, classes=more.pop("classes", CLASSES))
        segment = segment_over([(group.uid, len(rows))])
        upload = self.writer.make(
            groups=[group],
            segments=[segment],
            rows=[RowBatch(group.uid, 0, list(rows))],
            pages=pages_of(segment),
            **more,
        )
        self.writer.send(upload)
        self.groups.append(Held(group.uid, [Slot(row) for row in rows]))
        self.segments.append(segment)
        return upload

    def kill(self, refs: Sequence[RowRef]) -> None:
        self.writer.send(self.writer.make(killed=refs))
        self.die(refs)

    def die(self, refs: Sequence[RowRef]) -> None:
        for group in self.groups:
            for ref, slot in group.rows:
                if ref in refs:
                    slot.lives = False

    def change(self, ref: RowRef, before: SealedRow) -> None:
        self.add([person(before.record_id, before.version + 1)], killed=[ref])
        self.die([ref])

    def stand(
        self,
        runs: Sequence[tuple[int, int]],
        cuts: Sequence[int] = (),
        *,
        late: Sequence[RowRef] = (),
        classes: Sequence[LeastClass] = CLASSES,
    ) -> New:
        """Groups that stand for those from ``first`` to below ``end`` of each run.

        Args:
            cuts: among all rows of these, where another group begins.
            late: rows that died while they were sealed, so that they are no holes.
        """
        every = [self.groups[at] for first, end in runs for at in range(first, end)]
        slots = [
            Slot(slot.row if slot.lives or ref in late else None, slot.lives)
            for one in every
            for ref, slot in one.rows
        ]
        ends, edges = 0, {0, len(slots), *cuts}
        for first, end in runs:
            ends += sum(len(self.groups[at].slots) for at in range(first, end))
            edges.add(ends)
        inner = sorted(edges)
        of_row = [
            at for first, end in runs for at in range(first, end) for _ in self.groups[at].slots
        ]
        held: list[Held] = []
        groups: list[Group] = []
        batches: list[RowBatch] = []
        for begin, end in pairwise(inner):
            own = slots[begin:end]
            rows = [slot.row and person(slot.row.record_id, slot.row.version) for slot in own]
            group = group_of(rows, classes=classes)
            groups.append(group)
            held.append(Held(group.uid, own))
            batches.append(RowBatch(group.uid, 0, rows))
        ended = [one.uid for one in every]
        replaced = [
            segment for segment in self.segments if {uid for uid, _ in segment.groups} & set(ended)
        ]
        stays = {uid for one in replaced for uid, _ in one.groups} - set(ended)
        covered = [*(group for group in self.groups if group.uid in stays), *held]
        segment = segment_over(
            [(one.uid, len(one.slots)) for one in covered], purged=sum(one.dead for one in covered)
        )
        placed = [(ref, slot) for one in held for ref, slot in one.rows]
        return New(
            ended=ended,
            held=held,
            groups=groups,
            batches=batches,
            holes=[ref for ref, slot in placed if slot.row is None],
            killed=[ref for ref, slot in placed if slot.row is not None and not slot.lives],
            segment=segment,
            replaced=[one.uid for one in replaced],
            places=[of_row[begin] for begin in inner[:-1]],
        )

    def take(self, new: New) -> None:
        """What a commit of these groups does."""
        ended = set(new.ended)
        self.groups = [
            one
            for at, old in enumerate(self.groups)
            for one in [*new.at(at), *([] if old.uid in ended else [old])]
        ]
        self.segments = [segment for segment in self.segments if segment.uid not in new.replaced]
        self.segments.append(new.segment)


def digested(members: dict[str, Any]) -> dict[str, Any]:
    """The members of a commit, whose groups state the digests of their rows."""
    rows = {batch.group: batch.rows for batch in members["rows"]}
    groups = [
        msgspec.structs.replace(
            group, rows=digests.digest_rows(salt_of(group.uid).salt, rows.get(group.uid, ()))
        )
        for group in members["groups"]
    ]
    return members | {"groups": groups}
