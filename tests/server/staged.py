"""What a job stages at the API, as a proxy would; nothing of it has a meaning."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from encrypted_records.model import wire
from encrypted_records.model.digests import pack_fields
from encrypted_records.model.records import (
    ATTEMPT_HEADER,
    CommitUpload,
    Group,
    PackedRow,
    PackedRowBatch,
    Page,
    Part,
    PartUpload,
    RowBatch,
    SealedRow,
    Segment,
)
from tests.server.api import Account, Answer
from tests.server.writer import (
    FRAMES,
    Writer,
    bound,
    group_of,
    header_of,
    pages_of,
    salt_of,
    segment_over,
)


def packed(batch: RowBatch) -> PackedRowBatch:
    """A batch as it is in a part."""
    rows = [
        None
        if row is None
        else PackedRow(row.record_id, row.version, msgspec.Raw(pack_fields(row.fields)))
        for row in batch.rows
    ]
    return PackedRowBatch(batch.group, batch.first, rows)


class Job:
    """Parts of one staging, and the commit that publishes them."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.id = uuid.uuid4()
        self.parts: dict[int, PartUpload] = {}
        self.groups: dict[bytes, Group] = {}
        self.segments: dict[bytes, Segment] = {}

    def part(
        self,
        sequence: int,
        groups: Sequence[Group] = (),
        segments: Sequence[Segment] = (),
        rows: Sequence[RowBatch] = (),
        pages: Sequence[Page] = (),
        stands: Literal[0, 1] = 0,
    ) -> PartUpload:
        definition = self.writer.definition
        part = Part(self.id.bytes, sequence, definition, list(groups), list(segments), stands)
        return PartUpload(
            part,
            tuple(map(packed, rows)),
            tuple(pages),
            tuple(salt_of(group.uid) for group in groups),
            tuple(header_of(segment.uid) for segment in segments),
        )

    def adding(self, sequence: int, rows: Sequence[SealedRow]) -> PartUpload:
        """One group and its mini in one part."""
        group = group_of(rows)
        segment = segment_over([(group.uid, len(rows))])
        batch = RowBatch(group.uid, 0, list(rows))
        return self.part(sequence, [group], [segment], [batch], pages_of(segment))

    def post(
        self,
        upload: PartUpload,
        *,
        auth: Account | None = None,
        attempt: int | str = 0,
        **headers: str,
    ) -> Answer:
        body = b"".join(wire.encode_part(upload))
        path = f"{self.writer.schema['url']}staging/"
        sent = FRAMES | {ATTEMPT_HEADER: str(attempt)} | headers
        return (auth or self.writer.account).call("POST", path, body, **sent)

    def stage(self, upload: PartUpload, *, attempt: int = 0) -> None:
        assert self.post(upload, attempt=attempt).status in (200, 201)
        self.parts[upload.part.sequence] = upload
        self.groups |= {group.uid: group for group in upload.part.groups}
        self.segments |= {segment.uid: segment for segment in upload.part.segments}

    def commit(self, **changes: Any) -> CommitUpload:
        pages = [page for one in self.parts.values() for page in one.pages]
        members: dict[str, Any] = {
            "groups": list(self.groups.values()),
            "segments": [bound(segment, pages) for segment in self.segments.values()],
        }
        return self.writer.make(**(members | changes))

    def publish(self, *uploads: CommitUpload, **headers: str) -> Answer:
        body = wire.encode([upload.commit for upload in uploads])
        path = f"/api/jobs/{self.id}/publish/"
        return self.writer.account.call("POST", path, body, **(FRAMES | headers))

    def drop(self) -> Answer:
        return self.writer.account.call("DELETE", f"/api/jobs/{self.id}/")

    def token(self) -> str:
        answer = self.writer.account.call("POST", f"/api/jobs/{self.id}/token/")
        assert answer.status == 201, answer.body
        return f"Job {answer.json()['token']}"
