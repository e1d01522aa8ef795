"""Groups that stand for others, sealed and indexed by the package: what resealing will do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from encrypted_records.index.log.ledger import Ledger
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.index.segments.builder import STANDARD, SegmentLimits
from encrypted_records.ingest.seal import SealedGroup, seal_columns
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.records import CommitUpload, Group, KilledRows, PlainRecord, RowRef

Read = Callable[[RowRef], PlainRecord]


@dataclass(frozen=True)
class Standing:
    """New groups, as they were sealed at one version of the log."""

    seen: Snapshot
    definition: SchemaDefinition
    ended: list[bytes]
    old: list[RowRef]
    sealed: list[SealedGroup]

    def draft(self, ledger: Ledger, *, stays: bool = False) -> CommitUpload:
        """The commit that ends the old groups; they must be all of their segments', unless these
        stay as they are."""
        new = [RowRef(one.group.uid, at) for one in self.sealed for at in range(one.group.count)]
        place = dict(zip(self.old, new, strict=True))
        now = ledger.snapshot()
        holes = [place[ref] for ref in self.old if not _lives(self.seen, ref)]
        late = [ref for ref in self.old if _lives(self.seen, ref) and not _lives(now, ref)]
        ended = set(self.ended)
        replaced = [
            segment.uid
            for segment in now.segments
            if {uid for uid, _ in now.groups_of(segment)} & ended
        ]
        if stays:
            return ledger.draft(
                self.definition,
                groups=[one.group for one in self.sealed],
                killed=[place[ref] for ref in late],
                rows=[one.batch for one in self.sealed],
                salts=[one.salt for one in self.sealed],
                ended=self.ended,
                holes=holes,
            )
        return ledger.draft(
            self.definition,
            groups=[one.group for one in self.sealed],
            segments=[one.built.segment for one in self.sealed],
            killed=[place[ref] for ref in late],
            replaced=replaced,
            rows=[one.batch for one in self.sealed],
            salts=[one.salt for one in self.sealed],
            headers=[one.built.header for one in self.sealed],
            pages=[page for one in self.sealed for page in one.built.pages],
            ended=self.ended,
            holes=holes,
            new_definition=True,
        )


def stand(
    ledger: Ledger,
    definition: SchemaDefinition,
    read: Read,
    *,
    first: int = 0,
    end: int | None = None,
    cuts: Sequence[int] = (),
    limits: SegmentLimits = STANDARD,
) -> Standing:
    """Seal the live rows of consecutive groups again.

    Args:
        read: opens a live row.
        first, end: the groups' numbers in the order of the log.
        cuts: among all rows of these groups, where another new group begins.
    """
    seen = ledger.snapshot()
    groups = list(seen.in_order[: len(seen.groups)])[first:end]
    old = [RowRef(group.uid, at) for group in groups for at in range(group.count)]
    sealed = []
    for begin, until in pairwise(sorted({0, len(old), *cuts})):
        refs = old[begin:until]
        gone = [RowRef(bytes(16), at) for at, ref in enumerate(refs) if not _lives(seen, ref)]
        records = [read(ref) for ref in refs if _lives(seen, ref)]
        holes = KilledRows.gather(gone)
        sealed.append(
            seal_columns(
                ledger.key,
                ledger.tails,
                definition,
                [(record.record_id, record.version) for record in records],
                {name: [record.data.get(name) for record in records] for name in definition.fields},
                limits,
                before=_highest(groups),
                holes=holes[0].runs if holes else (),
            )
        )
    return Standing(seen, definition, [group.uid for group in groups], old, sealed)


def _lives(snapshot: Snapshot, ref: RowRef) -> bool:
    return snapshot.is_live(ref.group, ref.ordinal)


def _highest(groups: Sequence[Group]) -> Group:
    """The group whose classes are the highest; those of tests have equal ones."""
    return max(groups, key=lambda one: [stated.length for stated in one.classes])
