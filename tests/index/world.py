"""A schema with its log, rows and pages in memory: what the API would hold, and one reader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from encrypted_records.crypto.keys import Keyring, SchemaKey, SchemaKeys
from encrypted_records.index import rows as sealed_rows
from encrypted_records.index.building import STANDARD, Limits
from encrypted_records.index.ledger import Ledger
from encrypted_records.index.merge import merge
from encrypted_records.index.paged import Opened, PagedSegment
from encrypted_records.index.resolve import Matches, missing, resolve
from encrypted_records.index.segments import OpenSegment
from encrypted_records.ingest.seal import seal
from encrypted_records.model import wire
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.ids import new_id
from encrypted_records.model.questions import parse_query
from encrypted_records.model.records import (
    CommitUpload,
    LogEntry,
    ManifestDelta,
    Page,
    PlainRecord,
    RowRef,
    SealedRow,
    Segment,
)

#: A row: its group's place among all groups, and its ordinal there.
Row = tuple[int, int]


def new_keys() -> SchemaKeys:
    return Keyring.generate().schema(new_id(), new_id())


class World:
    """Applies commits as an honest API does; everything passes through the wire format."""

    def __init__(
        self, text: str, keys: SchemaKeys | None = None, limits: Limits = STANDARD
    ) -> None:
        self.definition = parse_definition(text)
        self.keys = keys or new_keys()
        self.limits = limits
        self.ledger = Ledger(self.keys, new_id())
        self.log: list[LogEntry] = []
        self.pages: dict[tuple[bytes, int], Page] = {}
        self.rows: dict[tuple[bytes, int], SealedRow] = {}

    @property
    def key(self) -> SchemaKey:
        """Of the newest version, which seals."""
        return self.keys.newest

    def plain(self, records: Iterable[Mapping[str, Any]]) -> list[PlainRecord]:
        """Records as accepted, each under a new id."""
        return [
            PlainRecord(
                new_id(),
                1,
                {
                    name: self.definition.fields[name].accept(value)
                    for name, value in record.items()
                    if value is not None
                },
            )
            for record in records
        ]

    def delta(self, entries: Sequence[LogEntry], version: int) -> ManifestDelta:
        return ManifestDelta(
            self.keys.schema, version, self.key.id, self.definition.digest, list(entries)
        )

    def apply(self, upload: CommitUpload) -> None:
        (received,) = wire.decode_uploads(b"".join(wire.encode_uploads([upload])))
        entry = LogEntry(len(self.log) + 1, received.commit)
        body = wire.encode([self.delta([entry], entry.version)])
        self.ledger.extend(wire.decode_one(body, ManifestDelta))
        self.log.append(entry)
        self.pages |= {(page.segment, page.number): page for page in received.pages}
        for batch in received.rows:
            for ordinal, row in enumerate(batch.rows, batch.first):
                self.rows[batch.group, ordinal] = row

    def ingest(self, records: Iterable[Mapping[str, Any]]) -> None:
        self.apply(seal(self.ledger, self.definition, self.plain(records), limits=self.limits))

    def kill(self, rows: Iterable[Row]) -> None:
        uids = self.group_uids()
        killed = [RowRef(uids[sequence], ordinal) for sequence, ordinal in rows]
        self.apply(self.ledger.draft(self.definition.digest, killed=killed))

    def merge(self, *, reverse: bool = False) -> None:
        """All live segments into one, in their order or the other way round."""
        view = self.ledger.view()
        inputs = self.opened()[:: -1 if reverse else 1]
        built = merge(self.key, self.definition, inputs, view, self.limits)
        self.apply(
            self.ledger.draft(
                self.definition.digest,
                segments=[built.segment],
                replaced=[segment.uid for segment in view.segments],
                pages=built.pages,
            )
        )

    def group_uids(self) -> dict[int, bytes]:
        return {state.sequence: uid for uid, state in self.ledger.view().groups.items()}

    def opened(self) -> list[Opened]:
        """Every live segment, all of it."""
        found = [self.open_segment(segment) for segment in self.ledger.view().segments]
        for segment in found:
            self.fetch(segment, lambda: segment.missing_columns(self.definition.fields))  # noqa: B023
        return found

    def open_segment(self, segment: Segment) -> Opened:
        """As much of it as is open before anything is asked."""
        key = self.keys.of(segment.key_version)
        if segment.form == "paged":
            return PagedSegment(key, self.definition, segment)
        return OpenSegment(key, self.definition, segment, self.pages[segment.uid, 0])

    def fetch(self, segment: Opened, missing: Callable[[], set[int]]) -> None:
        """Put in what is missing until nothing is: directories, then data pages, and no more."""
        for _ in range(2):
            for number in missing():
                assert isinstance(segment, PagedSegment)
                segment.put(number, self.pages[segment.segment.uid, number].data)
        assert not missing()

    def ask(self, where: Any) -> tuple[set[Row], set[Row]]:
        """Live rows that certainly and that possibly match."""
        query = parse_query({"where": where}, self.definition)
        view = self.ledger.view()
        certain: set[Row] = set()
        possible: set[Row] = set()
        place = (self.ledger.tails, self.definition)
        for segment in map(self.open_segment, view.segments):
            self.fetch(segment, lambda: missing(query.where, segment, *place))  # noqa: B023
            found = resolve(query.where, segment, *place)
            dead = view.dead_rows(segment.segment)
            live = Matches(found.certain - dead, found.possible - dead)
            for uid, base in segment.segment.groups:
                state = view.groups[uid]
                here = range(base, base + state.group.count)
                certain |= {(state.sequence, at - base) for at in live.certain if at in here}
                possible |= {(state.sequence, at - base) for at in live.possible if at in here}
        return certain, possible

    def open(self, row: Row) -> PlainRecord:
        uid = self.group_uids()[row[0]]
        group = self.ledger.view().groups[uid].group
        sealed = self.rows[uid, row[1]]
        key = self.keys.of(group.key_version)
        return sealed_rows.open_row(key, self.definition, group, row[1], sealed)
