"""A writer of commits that have the right shape and no meaning: the API cannot tell.

It keeps the chain of its own commits and the log's digest, as a proxy would.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import msgspec

from encrypted_records.model import digests, ids, wire
from encrypted_records.model.ciphertext_lengths import NUMBER_CLASS, LeastClass, least_class
from encrypted_records.model.definition_parser import parse_canonical, parse_definition
from encrypted_records.model.records import (
    PAGE_BYTES,
    Commit,
    CommitBody,
    CommitUpload,
    Group,
    GroupSalt,
    KilledRows,
    LogEntry,
    ManifestDelta,
    PackedRowBatch,
    Page,
    Receipt,
    RowBatch,
    RowRef,
    SealedRow,
    Segment,
    SegmentHeader,
)
from tests.server.api import PERSON, Account, Answer, id_bytes

PERSON_DEFINITION = parse_definition(msgspec.json.encode(PERSON))
FRAMES = {"Content-Type": wire.MEDIA_TYPE}
ZERO = bytes(32)


def sealed_string(padded: int = 32) -> bytes:
    return b"\x01" + os.urandom(1 + padded + 16)


def sealed_number() -> bytes:
    return b"\x01" + os.urandom(9 + 16)


def sealed_page(form: str = "mini") -> bytes:
    return b"\x01" + os.urandom(PAGE_BYTES - 1 if form == "paged" else 99)


def person(record_id: bytes | None = None, version: int = 1) -> SealedRow:
    """A row of the schema ``tests.server.api.PERSON``."""
    return SealedRow(record_id or ids.new_id(), version, [sealed_string(), sealed_number()])


#: Of a string field whose definition says no more.
ANY_TEXT = LeastClass(32, 0)
#: Of the schema ``tests.server.api.PERSON``.
CLASSES = (ANY_TEXT, NUMBER_CLASS)


def group_of(
    rows: Sequence[SealedRow | None],
    fields: Sequence[int] = PERSON_DEFINITION.ids,
    key_version: int = 1,
    classes: Sequence[LeastClass] = CLASSES,
    definition: bytes = PERSON_DEFINITION.digest,
) -> Group:
    stated = [*classes, *[ANY_TEXT] * len(fields)][: len(fields)]
    uid = os.urandom(16)
    digest = digests.digest_rows(salt_of(uid).salt, rows)
    return Group(uid, key_version, len(rows), list(fields), stated, definition, digest)


def salt_of(group: bytes) -> GroupSalt:
    return GroupSalt(group, hashlib.sha256(b"salt" + group).digest())


def header_of(segment: bytes) -> SegmentHeader:
    """A header that is always the same for one segment, and no other's."""
    salt, filling = (hashlib.sha256(what + segment).digest() for what in (b"salt", b"header"))
    return SegmentHeader(segment, salt, b"\x01" + filling * 2)


def bound(segment: Segment, pages: Iterable[Page]) -> Segment:
    """The segment with the digest that it has with those of these pages that are its own; where
    none is, as it is."""
    own = {page.number: page.data for page in pages if page.segment == segment.uid}
    if not own:
        return segment
    header = header_of(segment.uid)
    every = b"".join(digests.page_digest(own[number]) for number in sorted(own))
    digest = digests.segment_digest(header.salt, header.data, every)
    return msgspec.structs.replace(segment, digest=digest)


def segment_over(
    groups: Iterable[tuple[bytes, int]],
    form: Literal["mini", "paged"] = "mini",
    pages: int = 1,
    purged: int = 0,
    key_version: int = 1,
    definition: bytes = PERSON_DEFINITION.digest,
) -> Segment:
    """A segment over groups (uid, count), without ``purged`` of their rows."""
    bases, total = [], 0
    for uid, size in groups:
        bases.append((uid, total))
        total += size
    return Segment(
        uid=os.urandom(16),
        form=form,
        key_version=key_version,
        count=total - purged,
        purged=purged,
        groups=bases,
        pages=pages,
        digest=ZERO,
        definition=definition,
    )


def pages_of(segment: Segment) -> list[Page]:
    return [Page(segment.uid, number, sealed_page(segment.form)) for number in range(segment.pages)]


class Writer:
    """One writer's view of one schema. ``make`` does not send; ``send`` remembers what held."""

    def __init__(
        self,
        account: Account,
        schema: Any,
        *,
        key_id: bytes | None = None,
        signs: Callable[[Commit], bytes] | None = None,
    ) -> None:
        """
        Args:
            signs: gives the signature of a commit; none where there is no roster.
        """
        self.account = account
        self.schema = schema
        self.uid = os.urandom(16)
        self.key_id = key_id or os.urandom(8)
        self.key_version = 1
        self.signs = signs
        #: number and digest of the roster's head, and who signs
        self.stated = (0, ZERO, bytes(16))
        self.counter = 0
        self.previous = ZERO
        self.seen = 0
        self.seen_digest = ZERO
        parsed = parse_definition(msgspec.json.encode(schema["schema"]))
        self.definition = parsed.digest
        self.canonical = parsed.canonical
        self.fields = parsed.ids
        self.classes = [least_class(spec) for spec in parsed.fields.values()]

    def make(
        self,
        *,
        groups: Sequence[Group] = (),
        segments: Sequence[Segment] = (),
        rows: Sequence[RowBatch | PackedRowBatch] = (),
        pages: Sequence[Page] = (),
        killed: Sequence[RowRef] = (),
        replaced: Sequence[bytes] = (),
        requests: Sequence[bytes] = (),
        ended: Sequence[bytes] = (),
        holes: Sequence[RowRef] = (),
        **changes: Any,
    ) -> CommitUpload:
        """A commit; ``changes`` replace members of its body."""
        body = CommitBody(
            format=1,
            id=ids.new_id(),
            schema=id_bytes(self.schema),
            key_id=self.key_id,
            key_version=self.key_version,
            roster=self.stated[0],
            roster_digest=self.stated[1],
            member=self.stated[2],
            definition=self.definition,
            definition_text=b"" if self.seen else self.canonical,
            writer=self.uid,
            counter=self.counter + 1,
            previous=self.previous,
            seen=self.seen,
            seen_digest=self.seen_digest,
            groups=list(groups),
            segments=[bound(segment, pages) for segment in segments],
            killed=KilledRows.gather(killed),
            replaced=list(replaced),
            requests=list(requests),
            exact=0,
            ended=list(ended),
            holes=KilledRows.gather(holes),
        )
        encoded = wire.encode_commit_body(msgspec.structs.replace(body, **changes))
        commit = Commit(encoded, os.urandom(32), b"")
        if self.signs is not None:
            commit = msgspec.structs.replace(commit, signature=self.signs(commit))
        return CommitUpload(
            commit,
            tuple(rows),
            tuple(pages),
            tuple(salt_of(group.uid) for group in groups),
            tuple(header_of(segment.uid) for segment in segments),
        )

    def adding(
        self,
        rows: Sequence[SealedRow],
        *,
        fields: Sequence[int] | None = None,
        killed: Sequence[RowRef] = (),
        classes: Sequence[LeastClass] | None = None,
        **changes: Any,
    ) -> CommitUpload:
        """A commit that adds one group of rows under a mini segment."""
        own = self.fields if fields is None else fields
        stated = self.classes if classes is None else classes
        group = group_of(rows, own, self.key_version, stated, self.definition)
        segment = segment_over(
            [(group.uid, len(rows))], key_version=self.key_version, definition=self.definition
        )
        return self.make(
            groups=[group],
            segments=[segment],
            rows=[RowBatch(group.uid, 0, list(rows))],
            pages=pages_of(segment),
            killed=killed,
            **changes,
        )

    def changing(self, schema: dict[str, Any], **changes: Any) -> CommitUpload:
        """A commit that changes the definition, as a proxy would that follows its log."""
        present = parse_canonical(self.canonical)
        new = parse_definition(msgspec.json.encode(schema)).following(present)
        members = {"definition": new.digest, "definition_text": new.canonical, **changes}
        return self.make(**members)

    def merging(
        self, replaced: Sequence[Segment], sizes: Sequence[int], **more: Any
    ) -> CommitUpload:
        """A commit that replaces segments over groups of those sizes by one."""
        uids = [uid for segment in replaced for uid, _ in segment.groups]
        merged = more.pop("merged", None) or segment_over(zip(uids, sizes, strict=True))
        pages = more.pop("pages", None) or pages_of(merged)
        names = [segment.uid for segment in replaced]
        return self.make(segments=[merged], pages=pages, replaced=names, **more)

    def post(self, *uploads: CommitUpload) -> Answer:
        body = b"".join(wire.encode_uploads(uploads))
        return self.account.call("POST", "/api/commits/", body, **FRAMES)

    def send(self, upload: CommitUpload) -> Receipt:
        """Post a commit that must be applied, and go on from there."""
        answer = self.post(upload)
        assert answer.status == 201, answer.body
        self.follow(upload)
        return wire.decode_single(answer.body, Receipt)

    def follow(self, upload: CommitUpload) -> None:
        self.counter += 1
        self.previous = wire.commit_digest(upload.commit)
        self.catch_up()

    def catch_up(self) -> list[ManifestDelta]:
        """Read and verify the log that this writer has not seen."""
        deltas = self.manifest(self.seen)
        for delta in deltas:
            self.take_in(delta.entries)
        return deltas

    def take_in(self, entries: Iterable[LogEntry]) -> None:
        for entry in entries:
            assert entry.version == self.seen + 1
            self.seen = entry.version
            self.seen_digest = wire.next_log_digest(self.seen_digest, entry.commit)

    def manifest(self, since: int = 0) -> list[ManifestDelta]:
        answer = self.account.call("GET", f"{self.schema['url']}manifest/?since={since}")
        assert answer.status == 200, answer.body
        assert answer.headers["Content-Type"] == wire.MEDIA_TYPE
        return wire.decode_all(answer.body, ManifestDelta)

    def refused(self, upload: CommitUpload) -> tuple[int, str]:
        answer = self.post(upload)
        return answer.status, answer.code


def body_of(upload: CommitUpload) -> CommitBody:
    return wire.decode_commit_body(upload.commit)


def only_segment(upload: CommitUpload) -> Segment:
    [segment] = body_of(upload).segments
    return segment


def first_row(upload: CommitUpload) -> RowRef:
    return RowRef(body_of(upload).groups[0].uid, 0)
