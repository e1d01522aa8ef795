"""One request after the other, with exactly the headers that a test wants."""

from __future__ import annotations

import base64
import http.client
import os
import socket
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from encrypted_records.model.ids import from_text
from tests.support.eventually import eventually
from tests.support.service import ANSWER_SECONDS, Account, Answer, Service, call

RESUMABLE = {"Tus-Resumable": "1.0.0"}
#: Bytes that are no file yet may be any.
PARTIAL = {"Upload-Concat": "partial"}
BYTES = {"Content-Type": "application/offset+octet-stream"}
FILES = "/api/files/"


def encoded(**pairs: str) -> str:
    """Upload-Metadata."""
    return ",".join(
        f"{key} {base64.b64encode(value.encode()).decode()}" for key, value in pairs.items()
    )


@dataclass
class Client:
    """Sends as ``account``; None for nobody."""

    service: Service
    account: Account | None
    #: of every request
    headers: Mapping[str, str] = field(default_factory=lambda: RESUMABLE)

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.service.proxy_url)
        assert parts.hostname and parts.port
        return parts.hostname, parts.port

    def send(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: Any = None
    ) -> Answer:
        """``body`` is bytes, or an iterable of bytes, which goes out in chunks."""
        connection = http.client.HTTPConnection(*self.address, timeout=ANSWER_SECONDS)
        sent = {"Content-Length": "0"} if body is None else {}
        if self.account is not None:
            sent["Authorization"] = self.account.auth
        try:
            connection.request(method, path, body, sent | dict(self.headers) | dict(headers or {}))
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def create(self, length: int | None = None, **headers: str) -> str:
        """The path of a new upload; ``Upload_Concat="partial"`` is a header.

        One of which nothing is said is partial: its bytes may be any, for they are no file yet.
        """
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if length is not None:
            sent["Upload-Length"] = str(length)
        if sent.keys().isdisjoint({"Upload-Metadata", "Upload-Concat"}):
            sent |= PARTIAL
        answer = self.send("POST", FILES, sent)
        assert answer.status == 201, answer
        return urlsplit(answer.headers["Location"]).path

    def patch(self, path: str, offset: int, body: Any, **headers: str) -> Answer:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.send("PATCH", path, BYTES | {"Upload-Offset": str(offset)} | sent, body)

    def resume(self, path: str, data: bytes, **headers: str) -> Answer:
        """As a client does whose last request broke off: it asks where the upload is and sends the
        rest of ``data``, again while the proxy has not noticed the break (423) or was still at the
        last piece (409)."""

        def rest() -> Answer | None:
            offset = self.offset(path)
            answer = self.patch(path, offset, data[offset:], **headers)
            return None if answer.status in (409, 423) else answer

        answer = eventually(rest, "the rest is taken")
        assert answer is not None
        return answer

    def head(self, path: str) -> Answer:
        return self.send("HEAD", path)

    def offset(self, path: str) -> int:
        answer = self.head(path)
        assert answer.status == 200, answer
        return int(answer.headers["Upload-Offset"])

    def job(self, path: str) -> dict[str, Any]:
        """The progress of the upload's job; the job has the upload's id, written otherwise."""
        assert self.account is not None
        job = uuid.UUID(bytes=from_text(path.strip("/").rpartition("/")[2]))
        found = call("GET", f"{self.service.proxy_url}/api/jobs/{job}/", auth=self.account.auth)
        assert found.status == 200, found
        payload: dict[str, Any] = found.json()
        return payload

    def ended(self, path: str) -> dict[str, Any]:
        """The job's last progress, waited for."""
        eventually(lambda: self.job(path)["status"] in ("completed", "failed"), "the job ends")
        return self.job(path)

    def begin(self, path: str, offset: int, size: int, **headers: str) -> Sending:
        """A PATCH of ``size`` bytes, of which none has been sent yet."""
        assert self.account is not None
        sent = {
            "Host": "{}:{}".format(*self.address),
            "Authorization": self.account.auth,
            "Content-Length": str(size),
            "Upload-Offset": str(offset),
            **self.headers,
            **BYTES,
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        head = f"PATCH {path} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in sent.items())
        return Sending(socket.create_connection(self.address, 60), head + "\r\n")


class Sending:
    """A request whose body comes when a test says so."""

    def __init__(self, connection: socket.socket, head: str) -> None:
        self.connection = connection
        self.send(head.encode())

    def send(self, data: bytes) -> None:
        self.connection.sendall(data)

    def answer(self) -> http.client.HTTPResponse:
        answer = http.client.HTTPResponse(self.connection)
        answer.begin()
        return answer

    def break_off(self) -> None:
        self.connection.close()


def some_bytes(size: int) -> bytes:
    return os.urandom(size)
