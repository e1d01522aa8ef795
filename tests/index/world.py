"""A schema with its log, rows and pages in memory: what the API would hold, and one reader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from encrypted_records.crypto import sealing as sealed_rows
from encrypted_records.crypto.keys import Keyring, SchemaKey, SchemaKeys
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.index.query.candidates import Matches
from encrypted_records.index.query.condition import Condition
from encrypted_records.index.segments.builder import STANDARD, SegmentLimits
from encrypted_records.index.segments.loaded import KeptSegment, LoadedSegment, OpenedSegment, load
from encrypted_records.index.segments.merge import merge
from encrypted_records.index.segments.mini import MiniSegment
from encrypted_records.index.segments.opened_header import OpenedHeader
from encrypted_records.ingest.seal import seal
from encrypted_records.model import records as packed
from encrypted_records.model import wire
from encrypted_records.model.definition import SchemaDefinition, columns_of
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.ids import new_id
from encrypted_records.model.predicates import Predicate
from encrypted_records.model.queries import parse_query
from encrypted_records.model.records import (
    CommitUpload,
    LogEntry,
    ManifestDelta,
    Page,
    PlainRecord,
    RowRef,
    SealedRow,
    Segment,
    SegmentHeader,
)
from tests.support.standing import stand

#: A row: its group's place among all groups, and its ordinal there.
Row = tuple[int, int]


def new_keys() -> SchemaKeys:
    return Keyring.generate().schema(new_id(), new_id())


class World:
    """Applies commits as an honest API does; everything passes through the wire format."""

    def __init__(
        self, text: str, keys: SchemaKeys | None = None, limits: SegmentLimits = STANDARD
    ) -> None:
        self.shown = parse_definition(text)
        self.keys = keys or new_keys()
        self.limits = limits
        self.ledger = Ledger(self.keys, new_id())
        self.log: list[LogEntry] = []
        self.pages: dict[tuple[bytes, int], Page] = {}
        self.headers: dict[bytes, SegmentHeader] = {}
        self.rows: dict[tuple[bytes, int], SealedRow] = {}

    @property
    def definition(self) -> SchemaDefinition:
        return self.ledger.definition or self.shown

    @property
    def compared(self) -> SchemaDefinition:
        """By which keys are compared and questions read."""
        history = self.ledger.history
        return self.shown if history is None else history.compared

    def change(
        self, text: str, renamed: Mapping[str, str] | None = None, *, exact: bool = False
    ) -> None:
        """Commit another definition."""
        new = parse_definition(text).following(self.definition, renamed)
        self.apply(self.ledger.draft(new, new_definition=True, exact=exact))

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
        digest, headers = self.definition.digest, list(self.headers.values())
        return ManifestDelta(self.keys.schema, version, self.key.id, digest, list(entries), headers)

    def apply(self, upload: CommitUpload) -> None:
        (received,) = wire.decode_uploads(b"".join(wire.encode_uploads([upload])))
        entry = LogEntry(len(self.log) + 1, received.commit)
        self.headers |= {header.segment: header for header in received.headers}
        body = wire.encode([self.delta([entry], entry.version)])
        self.ledger.extend(wire.decode_single(body, ManifestDelta))
        self.log.append(entry)
        self.pages |= {(page.segment, page.number): page for page in received.pages}
        for batch in received.rows:
            for ordinal, row in enumerate(packed.sealed_rows(batch), batch.first):
                if row is not None:
                    self.rows[batch.group, ordinal] = row

    def ingest(self, records: Iterable[Mapping[str, Any]]) -> None:
        self.apply(
            seal(self.ledger, self.definition, self.plain(records), limits=self.limits).upload
        )

    def place(self, row: Row) -> int:
        """A row's number among all rows."""
        sequence, ordinal = row
        return self.ledger.snapshot().starts[sequence] + ordinal

    def row_at(self, place: int) -> Row:
        snapshot = self.ledger.snapshot()
        ref = snapshot.ref(place)
        return snapshot.groups[ref.group].sequence, ref.ordinal

    def kill(self, rows: Iterable[Row]) -> None:
        uids = self.group_uids()
        killed = [RowRef(uids[sequence], ordinal) for sequence, ordinal in rows]
        self.apply(self.ledger.draft(self.definition, killed=killed))

    def merge(self, *, reverse: bool = False) -> None:
        """All live segments into one, in their order or the other way round."""
        self.apply(self.merging(reverse=reverse))

    def merging(self, *, reverse: bool = False) -> CommitUpload:
        """The commit of :meth:`merge`."""
        snapshot = self.ledger.snapshot()
        inputs = self.opened()[:: -1 if reverse else 1]
        built = merge(self.key, self.definition, inputs, snapshot, self.limits)
        return self.ledger.draft(
            self.definition,
            segments=[built.segment],
            replaced=[segment.uid for segment in snapshot.segments],
            pages=built.pages,
            headers=[built.header],
        )

    def read(self, ref: RowRef) -> PlainRecord:
        return self.open((self.ledger.snapshot().groups[ref.group].sequence, ref.ordinal))

    def end(
        self,
        first: int = 0,
        end: int | None = None,
        cuts: Sequence[int] = (),
        late: Iterable[Row] = (),
        text: str = "",
    ) -> None:
        """Have others stand for these groups, whose segments must index no others.

        Args:
            late: rows that die while the new ones are sealed.
            text: of the definition that they are sealed under, if it is another.
        """
        new = parse_definition(text).following(self.definition) if text else self.definition
        standing = stand(
            self.ledger, new, self.read, first=first, end=end, cuts=cuts, limits=self.limits
        )
        late = list(late)
        if late:
            self.kill(late)
        self.apply(standing.draft(self.ledger))

    def compact(self, first: int, end: int, late: Iterable[Row] = ()) -> None:
        """Have one group stand for these, which one segment has in their order.

        Args:
            late: rows that die while it is sealed.
        """
        standing = stand(
            self.ledger, self.definition, self.read, first=first, end=end, limits=self.limits
        )
        late = list(late)
        if late:
            self.kill(late)
        self.apply(standing.draft(self.ledger, stays=True))

    def group_uids(self) -> dict[int, bytes]:
        return {state.sequence: uid for uid, state in self.ledger.snapshot().groups.items()}

    def opened(self) -> list[OpenedSegment]:
        """Every live segment, all of it."""
        found = [self.open_segment(segment) for segment in self.ledger.snapshot().segments]
        names = [spec.name for spec in columns_of(self.definition)]
        for segment in found:
            self.fetch(segment, lambda: segment.missing_columns(names))  # noqa: B023
        return found

    def open_segment(self, segment: Segment) -> OpenedSegment:
        """As much of it as is open before anything is asked."""
        return load(self.open_kept(segment))

    def open_kept(self, segment: Segment) -> KeptSegment:
        """As memory keeps it, for all questions."""
        key = self.keys.of(segment.key_version)
        header = self.headers[segment.uid]
        made = self.ledger.snapshot().made_under(segment)
        if segment.form == "paged":
            return OpenedHeader(key, self.compared, segment, header, made)
        page = self.pages[segment.uid, 0]
        return MiniSegment(key, self.compared, segment, header, page, made)

    def fetch(self, segment: OpenedSegment, missing: Callable[[], set[int]]) -> None:
        """Put in what is missing until nothing is: directories, then data pages, and no more."""
        for _ in range(2):
            for number in missing():
                assert isinstance(segment, LoadedSegment)
                segment.put(number, self.pages[segment.segment.uid, number].data)
        assert not missing()

    def sealed(self, segment: OpenedSegment, number: int) -> bytes:
        """A page as the API has it."""
        return self.pages[segment.segment.uid, number].data

    def ask(self, where: Any) -> tuple[set[Row], set[Row]]:
        """Live rows that certainly and that possibly match."""
        return self._match(parse_query({"where": where}, self.compared).where)

    def find(self, predicate: Predicate) -> set[Row]:
        """Live rows that match a predicate that keys decide."""
        certain, possible = self._match(predicate)
        assert certain == possible
        return certain

    def _match(self, predicate: Predicate) -> tuple[set[Row], set[Row]]:
        snapshot = self.ledger.snapshot()
        certain: set[Row] = set()
        possible: set[Row] = set()
        condition = Condition.of(predicate, self.ledger.tails, self.compared)
        for segment in map(self.open_segment, snapshot.segments):
            self.fetch(segment, lambda: condition.missing(segment))  # noqa: B023
            found = condition.match(segment)
            dead = snapshot.dead_rows(segment.segment)
            live = Matches(found.certain - dead, found.possible - dead)
            for uid, base in snapshot.groups_of(segment.segment):
                state = snapshot.groups[uid]
                here = range(base, base + state.group.count)
                certain |= {(state.sequence, at - base) for at in live.certain if at in here}
                possible |= {(state.sequence, at - base) for at in live.possible if at in here}
        return certain, possible

    def open(self, row: Row) -> PlainRecord:
        uid = self.group_uids()[row[0]]
        snapshot = self.ledger.snapshot()
        group = snapshot.groups[uid].group
        sealed, made = self.rows[uid, row[1]], snapshot.made_under(group)
        key = self.keys.of(group.key_version)
        return sealed_rows.open_row(key, self.definition, group, row[1], sealed, made)
