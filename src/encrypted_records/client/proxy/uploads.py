"""Local files, and their resumable uploads (TUS 1.0.0) over connections that may break.

A path may lead to a pipe, whose bytes can be read only once, or to another file the next time. So a
file is opened once: the bytes that are sent are the bytes that were inspected.

Only the proxy knows how much of a file it has; the client asks it after every interruption. So no
acknowledged byte is sent twice, and none is skipped.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Self, Unpack
from urllib.parse import urlsplit

from encrypted_records import runtime
from encrypted_records.client.limits import ClientLimits
from encrypted_records.client.proxy.connection import Connection
from encrypted_records.client.proxy.jobs import (
    UploadOptions,
    file_metadata,
    job_headers,
    target_names,
    upload_metadata,
)
from encrypted_records.errors import (
    ApiFailed,
    Conflict,
    ErsError,
    InvalidSetting,
    Throttled,
    Unavailable,
)
from encrypted_records.model.record_formats import Format

#: Bytes at either end of a file by which a proxy recognises it; the first ones also show the format
#: of its records.
END_BYTES = 64 << 10
#: Bytes per read.
_PIECE_BYTES = 1 << 20


class LocalFile:
    """A file that is open for reading.

    Args:
        path: of the file, or a name for ``stream``.
        stream: bytes to read instead, such as standard input.

    Attributes:
        start: the first 64 KiB.
        size: in bytes; None for a pipe, and for anything else whose size only reading reveals.

    Raises:
        InvalidSetting: it cannot be read.
    """

    def __init__(self, path: Path, stream: IO[bytes] | None = None) -> None:
        self.path = path
        self._lent = stream is not None
        self._size, self._changed = 0, 0
        with reading(path):
            self._file = path.open("rb") if stream is None else stream
            if stream is None:
                status = os.fstat(self._file.fileno())
                # Files in /proc are regular, but have size 0.
                self._size = status.st_size if stat.S_ISREG(status.st_mode) else 0
                self._changed = status.st_mtime_ns
            self.start = self._file.read(END_BYTES)
        # From here on it is a name, which JSON and headers contain.
        self.path = _in_utf8(path)
        self.size = self._size or None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._lent:
            self._file.close()

    @property
    def media_type(self) -> str:
        """The media type by the file's name, or else by its first bytes."""
        return Format.of_file(str(self.path), self.start).media_type

    @property
    def mark(self) -> str:
        """A mark by which a regular file is recognised; a changed file has another mark."""
        return f"{self._size} {self._changed} {_in_utf8(self.path.resolve())}"

    @property
    def changed(self) -> int:
        """The time of the last change, in milliseconds since 1970."""
        return self._changed // 1_000_000

    def require_size(self, why: str) -> int:
        """The size of a regular file, in bytes.

        Args:
            why: the operation that other files do not allow, for the error.

        Raises:
            InvalidSetting: it is a pipe, or empty.
        """
        if self.size is None:
            raise InvalidSetting(
                f"{self.path} is empty, or is a pipe, and {why}",
                hint="write it into a file first, and give that",
            )
        return self.size

    def pieces(self) -> Iterator[bytes]:
        """All of its bytes, readable once.

        Raises:
            InvalidSetting: it cannot be read any further, or was changed since it was opened.
        """
        if self.start:
            yield self.start
        with reading(self.path):
            while piece := self._file.read(_PIECE_BYTES):
                yield piece
        if self.size is not None:
            self.require_unchanged()

    def read_at(self, offset: int, size: int) -> bytes:
        """Bytes of a regular file at any offset.

        Raises:
            InvalidSetting: it cannot be read, or was changed since it was opened.
        """
        with reading(self.path):
            piece = os.pread(self._file.fileno(), size, offset)
        self.require_unchanged()
        if not piece:
            self._refuse_change()
        return piece

    def require_unchanged(self) -> None:
        """
        Raises:
            InvalidSetting: a regular file was changed since it was opened.
        """
        with reading(self.path):
            status = os.fstat(self._file.fileno())
        if (status.st_size, status.st_mtime_ns) != (self._size, self._changed):
            self._refuse_change()

    def _refuse_change(self) -> None:
        raise InvalidSetting(
            f"{self.path} was changed while it was sent",
            hint="nothing was stored; send it again when no other program is writing to it",
        )

    def digest_of_ends(self) -> str:
        """SHA-256 of the first and the last 64 KiB of a regular file, in hexadecimal."""
        last = max(self._size - END_BYTES, 0)
        ends = self.start + self.read_at(last, self._size - last)
        return hashlib.sha256(ends).hexdigest()

    def rewind(self) -> IO[bytes]:
        """The open file at its first byte, for a library that seeks."""
        self._file.seek(0)
        return self._file


def _in_utf8(path: Path) -> Path:
    """The path, with an escape for each byte that is not UTF-8."""
    return Path(os.fsencode(path).decode(errors="backslashreplace"))


@contextmanager
def reading(file: Path) -> Iterator[None]:
    """
    Raises:
        InvalidSetting: the file cannot be read.
    """
    try:
        yield
    except OSError as error:
        why = (error.strerror or "it fails").lower()
        raise InvalidSetting(f"{file} cannot be read: {why}") from error


#: Bytes of a file that suffice to detect how it is read; and of a workbook, which is read whole.
HEAD_BYTES, WHOLE_BYTES = 8 << 20, 16 << 20
#: The media type of a file of any kind that is sent with a reading.
READ_MEDIA_TYPE = "application/octet-stream"
_ARCHIVE = b"PK\x03\x04"
_COLUMNAR = (b"PAR1", b"ARROW1")
_TUS = {"Tus-Resumable": "1.0.0"}
#: Maximum seconds that a caller whose upload has failed waits until it is ended.
_ABANDON_SECONDS = 5.0
_PATCH = {**_TUS, "Content-Type": "application/offset+octet-stream"}


async def head_of(path: Path) -> tuple[bytes, int]:
    """The first bytes of a file, and its size.

    Raises:
        InvalidSetting: it cannot be read, is a pipe, or a file of columns.
    """
    with await runtime.in_thread(LocalFile, path) as file:
        size = file.require_size("a file is read twice: to see how it is read, and to store it")
        if file.start.startswith(_COLUMNAR):
            raise InvalidSetting(
                f"{path.name} is a Parquet, Arrow or Feather file, whose types are declared",
                hint="read it into a frame, and give that to create_schema and ingest",
            )
        return await runtime.in_thread(read_head, file), size


def read_head(file: LocalFile) -> bytes:
    """Read the first bytes of a file, enough to detect how it is read.

    Raises:
        InvalidSetting: the file cannot be read.
    """
    is_whole = file.start.startswith((_ARCHIVE, b"{"))
    return file.read_at(0, min(WHOLE_BYTES if is_whole else HEAD_BYTES, file.size or 0))


class Uploads(Connection):
    async def upload_file(self, path: Path, **options: Unpack[UploadOptions]) -> str:
        """Send a file, or the content of a pipe, with retries after lost connections; returns the
        id of its job.

        Raises:
            InvalidSetting: it cannot be read, or was changed during the upload.
            Conflict: ``uploaded_before``, unless ``again`` is true.
            Unavailable: several attempts transferred no data.
        """
        options = {"again": False, **options}
        with await runtime.in_thread(LocalFile, path) as file:
            if file.size is not None:
                exact = options.get("reading") is None
                media_type = file.media_type if exact else READ_MEDIA_TYPE
                upload, job = await self.begin_upload(file, media_type, **options)
                send = self.send_upload(upload, file)
            else:
                upload, job = await self.begin_stream(path.name, file.media_type, **options)
                send = self._send_pieces(upload, file)
            try:
                await send
            except BaseException:
                await self.abandon_upload(upload)
                raise
            return job

    async def _send_pieces(self, upload: str, file: LocalFile) -> None:
        offset, pieces = 0, file.pieces()
        piece = await runtime.in_thread(next, pieces, b"")
        while True:
            following = await runtime.in_thread(next, pieces, b"")
            offset = await self.append(upload, offset, piece, is_last=not following)
            if not following:
                return
            piece = following

    async def begin_upload(
        self, file: LocalFile, media_type: str, **options: Unpack[UploadOptions]
    ) -> tuple[str, str]:
        """Announce a regular file; returns the path of its upload, and the id of its job.

        Raises:
            InvalidSetting: the file is a pipe.
            Conflict: ``uploaded_before``, unless ``again`` is true.
        """
        size = file.require_size("only a file with a size can be resumed")
        metadata = {
            "filename": file.path.name,
            "filetype": media_type,
            "changed": str(file.changed),
            "ends": await runtime.in_thread(file.digest_of_ends),
        }
        return await self._begin(metadata, {"Upload-Length": str(size)}, options, again=False)

    async def begin_stream(
        self, filename: str, media_type: str | None = None, **options: Unpack[UploadOptions]
    ) -> tuple[str, str]:
        """:meth:`begin_upload` for data of unknown size; :meth:`append` sends it.

        Args:
            media_type: needed if the filename does not imply it.
            options: ``again`` is true unless it is given; otherwise, the job fails at the end of
                data that was stored before: ``uploaded_before``.
        """
        metadata = {"filename": filename} | ({"filetype": media_type} if media_type else {})
        return await self._begin(metadata, {"Upload-Defer-Length": "1"}, options, again=True)

    async def _begin(
        self,
        metadata: Mapping[str, str],
        length: Mapping[str, str],
        options: UploadOptions,
        *,
        again: bool,
    ) -> tuple[str, str]:
        described = {**metadata, **target_names(options), **file_metadata(options, again=again)}
        # Repeatable, because an upload without data stores nothing.
        answer = await self._transport.request(
            "POST",
            "/api/files/",
            headers={**_TUS, **length, **upload_metadata(described), **job_headers(options)},
            repeatable=True,
        )
        try:
            return urlsplit(answer.headers["Location"]).path, answer.headers["X-Job-Id"]
        except KeyError:
            raise ApiFailed("the answer names no upload") from None

    async def append(self, upload: str, offset: int, piece: bytes, *, is_last: bool) -> int:
        """Append a piece of a stream, with retries after lost connections; returns the new end.

        Args:
            offset: the position of the piece.

        Raises:
            Unavailable: several attempts transferred no data.
        """
        end = offset + len(piece)
        length = {"Upload-Length": str(end)} if is_last else {}
        pauses = list(self.limits.upload_pauses)
        reached = offset
        while True:
            try:
                answer = await self._transport.request(
                    "PATCH",
                    upload,
                    data=piece[reached - offset :],
                    headers={**_PATCH, **length, "Upload-Offset": str(reached)},
                )
                return _offset(answer.headers.get("Upload-Offset"))
            except (Unavailable, Conflict, Throttled) as error:
                headers = await self._head_after(error, upload, pauses)
                reached = _offset(headers.get("Upload-Offset"))
                if not offset <= reached <= end:
                    raise ApiFailed("the upload is not where it should be") from None
                if reached == end and (not is_last or "Upload-Length" in headers):
                    return end

    async def abandon_upload(self, upload: str) -> None:
        """End an upload that will not be continued, and its job. If the proxy does not answer, the
        upload expires later.
        """
        with suppress(ErsError):
            await self._transport.request("DELETE", upload, headers=_TUS, timeout=_ABANDON_SECONDS)

    async def upload_offset(self, upload: str) -> int:
        """The number of bytes of an upload at the proxy.

        Raises:
            NotFound: the upload is unknown, or no longer known.
        """
        return _offset((await self._head(upload)).get("Upload-Offset"))

    async def _head(self, upload: str) -> Mapping[str, str]:
        answer = await self._transport.request("HEAD", upload, headers=_TUS, repeatable=True)
        return answer.headers

    async def _head_after(
        self, error: ErsError, upload: str, pauses: list[float]
    ) -> Mapping[str, str]:
        """Ask how far an upload is after ``error``, repeatedly until the proxy answers: a restart
        takes it longer than one request is repeated.

        Args:
            pauses: seconds before each attempt; those that were used are removed.

        Raises:
            ErsError: ``error``, or the last failure, if no pause is left.
        """
        while pauses:
            await self._pause(error.retry_after or pauses.pop(0))
            try:
                return await self._head(upload)
            except Unavailable as failure:
                error = failure
        raise error

    async def send_upload(
        self,
        upload: str,
        file: LocalFile,
        *,
        on_offset: Callable[[int], None] = lambda _offset: None,
    ) -> None:
        """Send the part of a regular file that the proxy does not have yet, with retries after lost
        connections.

        Args:
            on_offset: called with the number of bytes sent so far.

        Raises:
            InvalidSetting: the file was changed during the upload.
            Unavailable: several attempts transferred no data. A later call continues from there.
        """
        size = file.require_size("only a file with a size can be resumed")
        pauses = list(self.limits.upload_pauses)
        offset = await self.upload_offset(upload)
        while offset < size:
            on_offset(offset)
            file.require_unchanged()
            try:
                answer = await self._transport.request(
                    "PATCH",
                    upload,
                    data=_part(file, offset, on_offset, self.limits),
                    headers={
                        **_PATCH,
                        "Upload-Offset": str(offset),
                        "Content-Length": str(min(self.limits.request_bytes, size - offset)),
                    },
                )
                reached = _offset(answer.headers.get("Upload-Offset"))
            except (Unavailable, Conflict, Throttled) as error:
                # Conflict: a broken request of ours is still running there, or has got further.
                headers = await self._head_after(error, upload, pauses)
                reached = _offset(headers.get("Upload-Offset"))
            if reached > offset:
                pauses = list(self.limits.upload_pauses)
            offset = reached
        on_offset(size)


async def _part(
    file: LocalFile, offset: int, on_offset: Callable[[int], None], limits: ClientLimits
) -> AsyncIterator[bytes]:
    """The bytes of a file for one request; never beyond its size when it was opened."""
    end = min(offset + limits.request_bytes, file.size or 0)
    while offset < end:
        most = min(limits.chunk_bytes, end - offset)
        piece = await runtime.in_thread(file.read_at, offset, most)
        yield piece
        offset += len(piece)
        on_offset(offset)


def _offset(text: str | None) -> int:
    if text is None or not (text.isascii() and text.isdecimal()):
        raise ApiFailed("the answer does not say how far the upload is")
    return int(text)
