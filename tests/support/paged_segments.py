"""What lies in a paged segment's pages, as a forger of them needs it."""

from __future__ import annotations

from collections.abc import Callable

from encrypted_records.crypto import sealing
from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.index.columns import directory, pages
from encrypted_records.index.columns.directory import Directory
from encrypted_records.index.segments.loaded import LoadedSegment
from encrypted_records.index.segments.opened_header import PageRole
from encrypted_records.model.definition import FieldSpec


def roles_of(segment: LoadedSegment) -> dict[int, PageRole]:
    """What each page stands for, as far as the segment's directories are here; no dummies."""
    every = {number: segment.directories.role(number) for number in range(segment.segment.pages)}
    return {number: role for number, role in every.items() if role is not None}


def stored_directory(
    key: SchemaKey, spec: FieldSpec, segment: LoadedSegment, read: Callable[[int], bytes]
) -> Directory:
    """The directory of a field as it lies in its pages, which ``read`` gives sealed."""
    contents = [
        pages.unframe(
            sealing.open_page(
                segment.directories.page_key(spec.name),
                role.kind,
                number,
                read(number),
                schema_context=sealing.context_of(key),
                segment=segment.segment.uid,
                field=spec.id_bytes,
            )
        )
        for number in segment.directories.opened.numbers[spec.name].tolist()
        if (role := segment.directories.role(number)) is not None
    ]
    return directory.decode(
        b"".join(contents),
        spec.kind,
        count=segment.count,
        pages=segment.segment.pages,
        packed=segment.directories.packed,
    )


def sealed_page(
    key: SchemaKey, spec: FieldSpec, uid: bytes, kind: int, number: int, content: bytes
) -> bytes:
    """A page of a field in the segment ``uid``."""
    return sealing.seal_page(
        key.field(spec).index(uid),
        kind,
        number,
        pages.frame(content),
        schema_context=sealing.context_of(key),
        segment=uid,
        field=spec.id_bytes,
    )
