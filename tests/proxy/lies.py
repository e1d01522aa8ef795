"""What an API could answer instead of the truth, one function each."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from encrypted_records.model import wire
from encrypted_records.model.records import (
    Commit,
    LogEntry,
    ManifestDelta,
    Page,
    PageDigests,
    Receipt,
    RowDigests,
    SealedRow,
    SegmentHeader,
    StoredRow,
)
from tests.support.front import Asked, Lie, Reply

Items = list[msgspec.Struct]
Edit = Callable[[Items], Items]


def on(paths: Sequence[str], edit: Edit) -> Lie:
    """Edit the frames of answers under these last parts of a path."""

    def lie(asked: Asked, reply: Reply) -> Reply:
        if reply.status >= 400 or not _is(asked, paths):
            return reply
        return reply.with_body(wire.encode(edit(list(wire.decode(reply.body)))))

    return lie


def _is(asked: Asked, paths: Sequence[str]) -> bool:
    return asked.path.partition("?")[0].rstrip("/").rpartition("/")[2] in paths


def instead(paths: Sequence[str], status: int, body: bytes, kind: str = "text/html") -> Lie:
    def lie(asked: Asked, reply: Reply) -> Reply:
        return Reply(status, {"Content-Type": kind}, body) if _is(asked, paths) else reply

    return lie


def cut(paths: Sequence[str], keep: Callable[[bytes], bytes]) -> Lie:
    def lie(asked: Asked, reply: Reply) -> Reply:
        return reply.with_body(keep(reply.body)) if _is(asked, paths) else reply

    return lie


@dataclass
class Replay:
    """Answers every question of a kind with the first answer that it saw to one of that kind."""

    paths: Sequence[str]
    first: dict[str, Reply] = field(default_factory=dict)

    def __call__(self, asked: Asked, reply: Reply) -> Reply:
        if not _is(asked, self.paths):
            return reply
        return self.first.setdefault(asked.path.partition("?")[0], reply)


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def each(kind: type[msgspec.Struct], change: Callable[[Any], msgspec.Struct]) -> Edit:
    def edit(items: Items) -> Items:
        return [change(item) if isinstance(item, kind) else item for item in items]

    return edit


def of(kind: type[msgspec.Struct], change: Callable[[list[Any]], Sequence[Any]]) -> Edit:
    """Change the frames of one kind as a list; the others stay before them."""

    def edit(items: Items) -> Items:
        others = [item for item in items if not isinstance(item, kind)]
        return [*others, *change([item for item in items if isinstance(item, kind)])]

    return edit


def entries(change: Callable[[list[LogEntry]], list[LogEntry]]) -> Edit:
    return each(
        ManifestDelta, lambda delta: msgspec.structs.replace(delta, entries=change(delta.entries))
    )


def _spoilt_commit(entry: LogEntry, **parts: Callable[[bytes], bytes]) -> LogEntry:
    commit = entry.commit
    found = {"body": commit.body, "mac": commit.mac, "signature": commit.signature}
    found |= {name: change(found[name]) for name, change in parts.items()}
    return LogEntry(entry.version, Commit(**found))


def _spoilt_row(row: StoredRow, at: int) -> StoredRow:
    sealed = row.row
    fields = [flipped(one, at) for one in sealed.fields]
    return StoredRow(row.group, row.ordinal, SealedRow(sealed.record_id, sealed.version, fields))


def _swapped(found: list[Any]) -> list[Any]:
    return found[::-1]


def _exchanged(rows: list[StoredRow]) -> list[StoredRow]:
    """Each place with the content of another row."""
    moved = rows[1:] + rows[:1]
    return [StoredRow(a.group, a.ordinal, b.row) for a, b in zip(rows, moved, strict=True)]


def _deltas(**members: Any) -> Edit:
    return each(ManifestDelta, lambda delta: msgspec.structs.replace(delta, **members))


def _behind(items: Items) -> Items:
    return each(
        ManifestDelta,
        lambda delta: msgspec.structs.replace(delta, version=max(0, delta.version - 1), entries=[]),
    )(items)


def _headers(change: Callable[[list[SegmentHeader]], list[SegmentHeader]]) -> Edit:
    return each(
        ManifestDelta, lambda delta: msgspec.structs.replace(delta, headers=change(delta.headers))
    )


def _each_header(**members: Callable[[SegmentHeader], Any]) -> Edit:
    def changed(one: SegmentHeader) -> SegmentHeader:
        return msgspec.structs.replace(
            one, **{name: change(one) for name, change in members.items()}
        )

    return _headers(lambda found: [changed(one) for one in found])


def _under_other_names(found: list[SegmentHeader]) -> list[SegmentHeader]:
    moved = found[1:] + found[:1]
    return [SegmentHeader(a.segment, b.salt, b.data) for a, b in zip(found, moved, strict=True)]


LOG = ("manifest", "rows", "pages")
EVERY = ("manifest", "rows", "pages", "records")
_CONFLICT = json.dumps({"code": "log_conflict", "detail": "x", "status": 409}).encode()
_GONE = json.dumps({"code": "row_gone", "detail": "x", "status": 404}).encode()

#: Lies about what is stored. Each is an error with a name, or changes nothing.
LIES: dict[str, Lie] = {
    "a log without its newest commit": on(LOG, entries(lambda found: found[:-1])),
    "a log without its first commit": on(LOG, entries(lambda found: found[1:])),
    "a log in another order": on(LOG, entries(_swapped)),
    "a commit twice": on(LOG, entries(lambda found: [*found, *found[-1:]])),
    "a commit with another body": on(
        LOG,
        entries(lambda found: [_spoilt_commit(e, body=lambda b: flipped(b, 30)) for e in found]),
    ),
    "a commit with another mac": on(
        LOG, entries(lambda found: [_spoilt_commit(e, mac=lambda m: flipped(m, 0)) for e in found])
    ),
    "a log that ends before its version": on(LOG, _deltas(version=10**6)),
    "a log behind what was seen": on(LOG, _behind),
    "a log of another schema": on(LOG, _deltas(schema=bytes(16))),
    "a log under another key": on(LOG, _deltas(key_id=bytes(8))),
    "a log under no key": on(LOG, _deltas(key_id=None)),
    "a log with another definition": on(LOG, _deltas(definition=bytes(32))),
    "a log that is shorter, it says": instead(LOG, 409, _CONFLICT, "application/problem+json"),
    "no log": on(LOG, of(ManifestDelta, lambda _: [])),
    "rows that changed places": on(("rows",), of(StoredRow, _swapped)),
    "rows with each other's content": on(("rows",), of(StoredRow, _exchanged)),
    "one row less": on(("rows",), of(StoredRow, lambda rows: rows[:-1])),
    "one row more": on(("rows",), of(StoredRow, lambda rows: [*rows, *rows[-1:]])),
    "one row for all": on(("rows",), of(StoredRow, lambda rows: rows[:1] * len(rows))),
    "no rows": on(("rows",), of(StoredRow, lambda _: [])),
    "a row with another version byte": on(("rows",), each(StoredRow, lambda r: _spoilt_row(r, 0))),
    "a row with another ciphertext": on(("rows",), each(StoredRow, lambda r: _spoilt_row(r, 3))),
    "a row with another tag": on(("rows",), each(StoredRow, lambda r: _spoilt_row(r, -1 % 17))),
    "a row under another id": on(
        ("rows",),
        each(
            StoredRow,
            lambda r: StoredRow(
                r.group,
                r.ordinal,
                SealedRow(flipped(r.row.record_id, 15), r.row.version, r.row.fields),
            ),
        ),
    ),
    "a row of another version": on(
        ("rows",),
        each(
            StoredRow,
            lambda r: StoredRow(
                r.group, r.ordinal, SealedRow(r.row.record_id, r.row.version + 1, r.row.fields)
            ),
        ),
    ),
    "a row with fewer fields": on(
        ("rows",),
        each(
            StoredRow,
            lambda r: StoredRow(
                r.group, r.ordinal, SealedRow(r.row.record_id, r.row.version, r.row.fields[:-1])
            ),
        ),
    ),
    "rows that are gone, it says": instead(("rows",), 404, _GONE, "application/problem+json"),
    "pages that changed places": on(("pages",), of(Page, _swapped)),
    "one page for all": on(("pages",), of(Page, lambda pages: pages[:1] * len(pages))),
    "one page less": on(("pages",), of(Page, lambda pages: pages[:-1])),
    "a page under another number": on(
        ("pages",), each(Page, lambda p: Page(p.segment, p.number + 1, p.data))
    ),
    "a page with other bytes": on(
        ("pages",), each(Page, lambda p: Page(p.segment, p.number, flipped(p.data, 40)))
    ),
    "a page cut short": on(
        ("pages",), each(Page, lambda p: Page(p.segment, p.number, p.data[:-1]))
    ),
    "no headers": on(LOG, _headers(lambda found: [])),
    "headers of other segments": on(LOG, _headers(_under_other_names)),
    "headers with other bytes": on(LOG, _each_header(data=lambda one: flipped(one.data, 20))),
    "headers under other salts": on(LOG, _each_header(salt=lambda one: flipped(one.salt, 0))),
    "an answer cut short": cut(EVERY, lambda body: body[:-1]),
    "half an answer": cut(EVERY, lambda body: body[: len(body) // 2]),
    "an empty answer": cut(EVERY, lambda _: b""),
    "an answer with more behind it": cut(LOG, lambda body: body + b"\x00"),
    "the page of a gateway": instead(EVERY, 200, b"<html>please log in</html>"),
    "a redirect": instead(EVERY, 302, b""),
    "a failure": instead(EVERY, 500, b"oops"),
}


def _record(change: Callable[[dict[str, Any]], None]) -> Lie:
    """Change the sealed records of a reading by id."""

    def lie(asked: Asked, reply: Reply) -> Reply:
        if not _is(asked, ("records",)) or reply.status >= 400:
            return reply
        found = json.loads(reply.body)
        for result in found["results"]:
            change(result)
        return reply.with_body(json.dumps(found).encode())

    return lie


def _rename(record: dict[str, Any]) -> None:
    identifier = record["id"]
    record["id"] = identifier[:-1] + ("2" if identifier[-1] != "2" else "3")


def _flip_text(record: dict[str, Any]) -> None:
    name = next(iter(record["fields"]))
    sealed = record["fields"][name]
    record["fields"][name] = sealed[:-4] + ("AAAA" if sealed[-4:] != "AAAA" else "BAAA")


def _told(**members: Callable[[RowDigests], Any]) -> Lie:
    def changed(one: RowDigests) -> RowDigests:
        return msgspec.structs.replace(
            one, **{name: change(one) for name, change in members.items()}
        )

    return on(("digests",), each(RowDigests, changed))


#: Of what proves a row.
LIES_ABOUT_DIGESTS: dict[str, Lie] = {
    "another salt": _told(salt=lambda one: flipped(one.salt, 0)),
    "another group": _told(group=lambda one: flipped(one.group, 0)),
    "another place": _told(first=lambda one: one.first + 64),
    "a place before all others": _told(first=lambda one: 1),
    "a row's digest altered": _told(rows=lambda one: flipped(one.rows, 0)),
    "the rows' digests cut short": _told(rows=lambda one: one.rows[:31]),
    "a run's digest altered": _told(runs=lambda one: flipped(one.runs, 0)),
    "a run more": _told(runs=lambda one: one.runs * 2),
    "nothing": _told(rows=lambda one: b"", runs=lambda one: b""),
    "no answer": on(("digests",), lambda items: []),
    "two answers": on(("digests",), lambda items: items * 2),
    "an answer of another kind": on(("digests",), lambda items: [PageDigests(bytes(16), b"")]),
    "an answer cut short": cut(("digests",), lambda body: body[:-1]),
}


LIES_ABOUT_ONE: dict[str, Lie] = {
    "another id": _record(_rename),
    "frames where JSON was asked for": instead(("records",), 200, wire.encode([]), wire.MEDIA_TYPE),
    "another version": _record(lambda r: r.update(version=r["version"] + 1)),
    "another place": _record(lambda r: r.update(ordinal=r["ordinal"] + 1)),
    "another group": _record(lambda r: r.update(group="00" * 16)),
    "another key": _record(lambda r: r.update(key_id="00" * 8)),
    "another key version": _record(lambda r: r.update(key_version=r["key_version"] + 1)),
    "fewer fields": _record(lambda r: r["fields"].popitem()),
    "other bytes": _record(_flip_text),
    "an earlier answer": Replay(("records",)),
}


def receipts(**members: Any) -> Lie:
    """Receipts that say something else of commits that were stored."""
    return on(
        ("commits",), each(Receipt, lambda receipt: msgspec.structs.replace(receipt, **members))
    )
