"""Resumable uploads (TUS 1.0.0): files of any size, through connections that break.

The proxy alone knows how much of a file it has; after every interruption it is asked. So no byte is
sent twice that it has acknowledged, and none is left out.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from encrypted_records.client.limits import ClientLimits
from encrypted_records.client.media import reading
from encrypted_records.client.proxy.connection import Connection
from encrypted_records.client.proxy.jobs import OnConflict, job_headers
from encrypted_records.errors import ApiFailed, Conflict, Throttled, Unavailable

_TUS = {"Tus-Resumable": "1.0.0"}
_PATCH = {**_TUS, "Content-Type": "application/offset+octet-stream"}


class Uploads(Connection):
    async def begin_upload(
        self,
        path: Path,
        media_type: str,
        *,
        schema: str | None = None,
        batch_size: int | None = None,
        skip_invalid: bool = False,
        on_conflict: OnConflict | None = None,
        by: Sequence[str] = (),
    ) -> tuple[str, str]:
        """Announce a file; the path of its upload, and the id of its job.

        Args: as :meth:`Jobs.upload`.
        """
        told = {"filename": path.name, "filetype": media_type}
        length = {"Upload-Length": str(_size(path))}
        headers = job_headers(batch_size, skip_invalid, on_conflict)
        return await self._begin(told | _name_schema(schema) | _name_set(by), length, headers)

    async def begin_stream(
        self,
        filename: str,
        *,
        schema: str | None = None,
        skip_invalid: bool = False,
        on_conflict: OnConflict | None = None,
        by: Sequence[str] = (),
    ) -> tuple[str, str]:
        """:meth:`begin_upload` of what has no length yet; :meth:`append` brings it."""
        told = {"filename": filename} | _name_schema(schema) | _name_set(by)
        headers = job_headers(None, skip_invalid, on_conflict)
        return await self._begin(told, {"Upload-Defer-Length": "1"}, headers)

    async def _begin(
        self, told: Mapping[str, str], length: Mapping[str, str], job: Mapping[str, str]
    ) -> tuple[str, str]:
        pairs = (
            f"{name} {base64.b64encode(text.encode()).decode()}" for name, text in told.items()
        )
        # Repeated, since an upload to which nothing is brought stores nothing.
        answer = await self._transport.request(
            "POST",
            "/api/files/",
            headers={**_TUS, **length, "Upload-Metadata": ",".join(pairs), **job},
            repeatable=True,
        )
        try:
            return urlsplit(answer.headers["Location"]).path, answer.headers["X-Job-Id"]
        except KeyError:
            raise ApiFailed("the answer names no upload") from None

    async def append(self, upload: str, offset: int, piece: bytes, *, is_last: bool) -> int:
        """Bring a piece of a stream over, however often the connection breaks; where it ends.

        Args:
            offset: where it begins.

        Raises:
            Unavailable: several attempts brought no byte.
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
                if not pauses:
                    raise
                await asyncio.sleep(error.retry_after or pauses.pop(0))
                headers = await self._head(upload)
                reached = _offset(headers.get("Upload-Offset"))
                if not offset <= reached <= end:
                    raise ApiFailed("the upload is not where it has to be") from None
                if reached == end and (not is_last or "Upload-Length" in headers):
                    return end

    async def upload_offset(self, upload: str) -> int:
        """How many bytes of an upload the proxy has.

        Raises:
            NotFound: it knows no such upload, or no longer.
        """
        return _offset((await self._head(upload)).get("Upload-Offset"))

    async def _head(self, upload: str) -> Mapping[str, str]:
        answer = await self._transport.request("HEAD", upload, headers=_TUS, repeatable=True)
        return answer.headers

    async def send_upload(
        self, upload: str, path: Path, *, on_offset: Callable[[int], None] = lambda _offset: None
    ) -> None:
        """Send what the proxy has not yet of a file, however often the connection breaks.

        Args:
            on_offset: told how far the file is, in bytes, as it leaves.

        Raises:
            Unavailable: several attempts brought no byte. A later call goes on from there.
        """
        size = _size(path)
        pauses = list(self.limits.upload_pauses)
        offset = await self.upload_offset(upload)
        while offset < size:
            on_offset(offset)
            try:
                answer = await self._transport.request(
                    "PATCH",
                    upload,
                    data=_part(path, offset, on_offset, self.limits),
                    headers={
                        **_PATCH,
                        "Upload-Offset": str(offset),
                        "Content-Length": str(min(self.limits.request_bytes, size - offset)),
                    },
                )
                reached = _offset(answer.headers.get("Upload-Offset"))
            except (Unavailable, Conflict, Throttled) as error:
                # Conflict: a request of ours that broke off is not over there yet, or got further.
                if not pauses:
                    raise
                await asyncio.sleep(error.retry_after or pauses.pop(0))
                reached = await self.upload_offset(upload)
            if reached > offset:
                pauses = list(self.limits.upload_pauses)
            offset = reached
        on_offset(size)


async def _part(
    path: Path, offset: int, on_offset: Callable[[int], None], limits: ClientLimits
) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        file.seek(offset)
        end = offset + limits.request_bytes
        while offset < end:
            piece = await asyncio.to_thread(file.read, min(limits.chunk_bytes, end - offset))
            if not piece:
                return
            yield piece
            offset += len(piece)
            on_offset(offset)


def _name_schema(schema: str | None) -> dict[str, str]:
    return {} if schema is None else {"schema": schema}


def _name_set(by: Sequence[str]) -> dict[str, str]:
    return {"by": ",".join(by)} if by else {}


def _size(path: Path) -> int:
    with reading(path):
        return path.stat().st_size


def _offset(text: str | None) -> int:
    if text is None or not (text.isascii() and text.isdecimal()):
        raise ApiFailed("the answer does not say how far the upload is")
    return int(text)
