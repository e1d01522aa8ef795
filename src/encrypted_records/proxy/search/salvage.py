"""All records of a schema that open, even if its log is broken.

A row opens only under a key of its group and with its ordinal, so a row that opens was stored as
this version of this record by a holder of the key. As far as the log is authentic, it also proves
which rows are live. After that there is only the API's word. The API can show an old version as the
newest, or a deleted record, or a row that was never published, and it can leave rows out; so each
record says whether the log proves it, and the report counts missing rows.

If the log is broken, all rows are read twice: the newest version of each record must be known
before the first record is returned. Until then a temporary database has the record ids, groups and
ordinals of the rows that the log does not prove, but no decrypted content.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field

from pyroaring import BitMap

from encrypted_records import runtime
from encrypted_records.client.api import Api, StoredPage
from encrypted_records.crypto.sealing import open_row, sort_fields
from encrypted_records.errors import ApiFailed, Closed, DoesNotOpen, KeyMissing, Malformed
from encrypted_records.model.ciphertext_lengths import BESIDE_CLASS, LeastClass, fixed_class
from encrypted_records.model.definition import FieldSpec, SchemaDefinition
from encrypted_records.model.ids import from_text
from encrypted_records.model.records import MAX_GROUP_RECORDS, Group, PlainRecord, SealedRow
from encrypted_records.model.resources import UnfilteredRecord
from encrypted_records.proxy.disk import disk_errors
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process import put_first
from encrypted_records.proxy.schemas.state import SoundPart
from encrypted_records.proxy.schemas.states import Schemas

#: Limits of the rows requested at once; between them, the expected bytes of the answer decide.
FEWEST, MOST = 20, 1000
ANSWER_BYTES = 16 << 20
#: Pages of 4 KiB that the temporary database may have: 4 TiB, so that only the disk limits it.
MOST_TEMPORARY_PAGES = 1 << 30
#: Maximum number of rows that an API may claim; a tenth of it cannot be indexed in a schema.
_MOST_ROWS = 1 << 32
_TEMPORARY = "check the disk that holds temporary files"
_NOT_KEPT = "the list of record ids for salvaging cannot be stored"
_FULL = "the disk that holds temporary files is full"
#: The digest for a group that the log does not name.
_NO_DIGEST = bytes(32)
#: The newest version of each record that opens and is not proven. An ordinal of -1 means that it
#: has been returned.
_NEWEST = """
CREATE TABLE newest (
    record BLOB PRIMARY KEY, version INTEGER NOT NULL, uid BLOB NOT NULL, ordinal INTEGER NOT NULL
) WITHOUT ROWID
"""
_OFFER = """
INSERT INTO newest VALUES (?, ?, ?, ?) ON CONFLICT (record) DO UPDATE
SET version = excluded.version, uid = excluded.uid, ordinal = excluded.ordinal
WHERE excluded.version > newest.version
"""
_ASK = "SELECT version, uid, ordinal FROM newest WHERE record = ?"
_RETURNED = -1
_MARK_RETURNED = "UPDATE newest SET ordinal = -1 WHERE record = ?"
_NOTHING = (0, None, None)


@dataclass(frozen=True, slots=True)
class SavedRecord:
    """A record, and whether the log proves that this version of it is current."""

    record: PlainRecord
    proven: bool


@dataclass(slots=True)
class SalvageCounts:
    """Counts of the outcomes for rows that the API has, including dead ones."""

    rows: int = 0
    #: returned records, and how many of them the log proves
    records: int = 0
    proven: int = 0
    #: the log says that their records were changed or deleted
    ended: int = 0
    #: a newer version of the record was returned
    older: int = 0
    #: ended according to the API, without proof in the log, and not requested by the caller
    left_out: int = 0
    unopened: int = 0
    without_key: int = 0
    #: stored during the salvage, or of a group that an intact log does not have
    beyond: int = 0
    #: returned without a field of the definition that they may have had
    incomplete: int = 0
    #: live by the log; the API did not return them, or they did not open
    missing: int = 0


@dataclass(frozen=True, slots=True)
class Salvage:
    """``batches`` may be read once; an empty batch says that more may come. ``counts`` are complete
    when ``batches`` has ended."""

    definition: SchemaDefinition
    sound: SoundPart
    counts: SalvageCounts
    batches: AsyncIterator[Sequence[SavedRecord]]


@dataclass(eq=False, repr=False)
class Salvager:
    """
    Args:
        answer_bytes: approximate size of the rows that are requested at once, in bytes.
        temporary_pages: maximum size of the temporary database, in pages of 4 KiB.
    """

    _api: Api
    _schemas: Schemas
    _answer_bytes: int = ANSWER_BYTES
    _temporary_pages: int = MOST_TEMPORARY_PAGES

    async def salvage(
        self, caller: Callable[[], Awaitable[Holder]], schema: bytes, *, ended: bool = True
    ) -> Salvage:
        """All records of a schema that open, each in its newest version that opens.

        The first rows are fetched before this returns, so that most errors occur while an HTTP
        status can still report them.

        Args:
            caller: the owner of the records; awaited for each request, as a salvage takes long.
            ended: also return rows that ended according to the API, without proof in the log.

        Raises:
            ErsError: as :meth:`Schemas.sound_part`.
            OutOfSpace, Unavailable: the disk cannot store the temporary database.
        """
        who = await caller()
        sound = await self._schemas.sound_part(who, schema)
        run = _SalvageRun(
            self._api,
            caller,
            schema,
            sound,
            ended=ended,
            answer_bytes=self._answer_bytes,
            temporary_pages=self._temporary_pages,
        )
        batches = run.batches()
        first: Sequence[SavedRecord] = await anext(batches, ())
        return Salvage(sound.definition, sound, run.counts, put_first(first, batches))


@dataclass
class _SalvageRun:
    """A running salvage."""

    api: Api
    caller: Callable[[], Awaitable[Holder]]
    schema: bytes
    sound: SoundPart
    ended: bool = field(kw_only=True)
    answer_bytes: int = field(kw_only=True)
    temporary_pages: int = field(kw_only=True)
    counts: SalvageCounts = field(default_factory=SalvageCounts)

    def __post_init__(self) -> None:
        self._snapshot = self.sound.ledger.snapshot()
        self._keys = self.sound.ledger.keys
        self._came: dict[bytes, BitMap] = {}
        self._live_rows = 0

    async def batches(self) -> AsyncGenerator[Sequence[SavedRecord], None]:
        # SQLite makes an unnamed file only if memory is short, and removes it when it is closed.
        with closing(sqlite3.connect("", isolation_level=None, check_same_thread=False)) as newest:
            with _disk_errors():
                newest.execute(f"PRAGMA max_page_count = {self.temporary_pages:d}")
                newest.execute(_NEWEST)
            if self.sound.fault is not None:
                async for rows in self._rows():
                    await runtime.in_thread(self._offer, newest, rows)
                    yield []
            self._came = {}
            async for rows in self._rows():
                yield await runtime.in_thread(self._save, newest, rows)
        self.counts.missing = self._snapshot.count - self._live_rows

    async def _rows(self) -> AsyncIterator[list[UnfilteredRecord]]:
        """The rows that the API returns; a row that the log has is returned only once."""
        offset, limit, count = 0, MOST // 10, 1
        while offset < count:
            page, size = await self._page(offset, limit)
            count = page.count
            offset += limit
            if size > self.answer_bytes:
                limit = max(FEWEST, limit // 2)
            elif size < self.answer_bytes // 4:
                limit = min(MOST, limit * 2)
            yield [row for row in page.results if self._is_new(row)]

    async def _page(self, offset: int, limit: int) -> tuple[StoredPage, int]:
        caller = await self.caller()
        page, size = await self.api.stored_records(
            self.schema, caller.auth, offset=offset, limit=limit
        )
        if page.count > _MOST_ROWS or len(page.results) > limit:
            raise ApiFailed("the API returned more rows than can exist")
        return page, size

    def _is_new(self, row: UnfilteredRecord) -> bool:
        """Whether a row that the log has came for the first time. Of all other rows, each record is
        returned once, however often it comes."""
        uid = _uid(row)
        if uid not in self._snapshot.groups:
            return True
        came = self._came.setdefault(uid, BitMap())
        if row.ordinal in came:
            return False
        came.add(row.ordinal)
        return True

    # --- rows that the log does not prove ----------------------------------------------------

    def _offer(self, newest: sqlite3.Connection, rows: Sequence[UnfilteredRecord]) -> None:
        """Note the rows that open and that the log lacks, if they are the newest version so far."""
        offers = []
        for row in rows:
            if self._group(row) is None and (self.ended or not row.dead):
                record = self._open_or_count(row, SalvageCounts())
                if record is not None:
                    offers.append((record.record_id, record.version, _uid(row), row.ordinal))
        with _disk_errors():
            newest.executemany(_OFFER, offers)

    def _group(self, row: UnfilteredRecord) -> Group | None:
        """The row's group, if the log has it."""
        state = self._snapshot.groups.get(_uid(row))
        return None if state is None else state.group

    # --- results ---------------------------------------------------------------------------

    def _save(
        self, newest: sqlite3.Connection, rows: Sequence[UnfilteredRecord]
    ) -> list[SavedRecord]:
        self.counts.rows += len(rows)
        with _disk_errors():
            checked = [self._check_row(newest, row) for row in rows]
        saved = [outcome for outcome in checked if outcome is not None]
        self.counts.records += len(saved)
        self.counts.proven += sum(outcome.proven for outcome in saved)
        return saved

    def _check_row(self, newest: sqlite3.Connection, row: UnfilteredRecord) -> SavedRecord | None:
        counts = self.counts
        group = self._group(row)
        if group is not None and row.ordinal in self._snapshot.dead.get(group.uid, ()):
            counts.ended += 1
            return None
        record = self._open_or_count(row, counts)
        if record is None:
            return None
        # The log has the row as live: dead rows were counted above.
        self._live_rows += group is not None
        if row.dead and not self.ended:
            counts.left_out += 1
            return None
        version, uid, ordinal = newest.execute(_ASK, (record.record_id,)).fetchone() or _NOTHING
        if group is not None:
            if ordinal == _RETURNED or version > record.version:
                counts.older += 1
                return None
        elif (uid, ordinal) != (_uid(row), row.ordinal):
            counts.older += uid is not None
            counts.beyond += uid is None
            return None
        elif len(row.fields) < len(self.sound.definition.fields):
            counts.incomplete += 1
        newest.execute(_MARK_RETURNED, (record.record_id,))
        return SavedRecord(record, group is not None)

    def _open_or_count(self, row: UnfilteredRecord, counts: SalvageCounts) -> PlainRecord | None:
        """The record if it opens; otherwise the failure is counted."""
        try:
            return self._open(row)
        except KeyMissing:
            counts.without_key += 1
        except (Closed, Malformed):
            counts.unopened += 1
        return None

    def _open(self, row: UnfilteredRecord) -> PlainRecord:
        definition = self.sound.definition
        group = self._group(row)
        if group is None:
            key = self._keys.find(row.key_version, _key_id(row))
            specs = [spec for name, spec in definition.fields.items() if name in row.fields]
            classes = [self._class_of(spec, row.fields[spec.name]) for spec in specs]
            ids = [spec.id for spec in specs]
            group = Group(
                *(_uid(row), row.key_version, MAX_GROUP_RECORDS, ids, classes),
                definition=definition.digest,
                rows=_NO_DIGEST,
            )
        else:
            key = self._keys.of(group.key_version)
        if not row.fields or row.ordinal >= group.count:
            raise DoesNotOpen("there is no such row, or it is empty")
        fields = sort_fields(definition, group, row.fields)
        sealed = SealedRow(from_text(row.id), row.version, fields)
        history = self.sound.ledger.history
        made = definition if history is None else history.of(group.definition)
        return open_row(key, definition, group, row.ordinal, sealed, made)

    def _class_of(self, spec: FieldSpec, sealed: bytes) -> LeastClass:
        """The length class that an unknown group may have stated, derived from one of its rows."""
        if (fixed := fixed_class(spec)) is not None:
            return fixed
        return LeastClass(len(sealed) - BESIDE_CLASS, 0)


def _disk_errors() -> AbstractContextManager[None]:
    return disk_errors(_NOT_KEPT, code="proxy_store_failed", hint=_TEMPORARY, full=_FULL)


def _uid(row: UnfilteredRecord) -> bytes:
    """The uid of the row's group; empty, which is no group's uid, if the API names none."""
    try:
        return bytes.fromhex(row.group)
    except ValueError:
        return b""


def _key_id(row: UnfilteredRecord) -> bytes:
    """
    Raises:
        Malformed: it is not a key id.
    """
    try:
        return bytes.fromhex(row.key_id)
    except ValueError:
        raise Malformed("key_id is hexadecimal") from None
