"""Messages of PostgreSQL's protocol 3: bytes in, values out; no I/O.

Source: PostgreSQL documentation, chapter "Frontend/Backend Protocol". A client's first message has
no type byte: it starts a session, asks for encryption or cancels a statement. Every later message
is a type byte, a length of four bytes that counts itself, and a body.

Rules: lengths are checked against a limit before use, so a client can make the server hold no more
bytes than the limit of its state; a message that does not parse to its last byte is a
`ProtocolViolation`, after which the connection ends.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

#: Codes of first messages that are not versions.
_CANCEL, _TLS, _GSS = 80877102, 80877103, 80877104
MAJOR = 3
#: Maximum bytes of a first message, as in PostgreSQL (MAX_STARTUP_PACKET_LENGTH).
STARTUP_BYTES = 10_000
#: Maximum bytes of a message before the login.
LOGIN_BYTES = 65_536
_LENGTH = struct.Struct("!i")
_SHORT = struct.Struct("!h")
_COUNT = struct.Struct("!H")


class ProtocolViolation(Exception):
    """A client's bytes violate the protocol; the message names the violated rule."""


@dataclass(frozen=True, slots=True)
class StartupMessage:
    """The start of a session. ``minor`` is the version after ``3.``."""

    minor: int
    parameters: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class EncryptionRequest:
    """A request for TLS, or for GSSAPI if ``tls`` is false."""

    tls: bool


@dataclass(frozen=True, slots=True)
class Cancel:
    """A request to cancel another connection's statement; ``secret`` must not be printed."""

    process: int
    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Password:
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class SimpleQuery:
    """One or more statements to run at once, with text results."""

    sql: str


@dataclass(frozen=True, slots=True)
class Parse:
    """``types`` are OIDs of parameters, 0 if the server has to determine the type."""

    name: str
    sql: str
    types: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Bind:
    """Formats are 0 (text) or 1 (binary): none, a single format for all, or one per value."""

    portal: str
    statement: str
    formats: tuple[int, ...]
    values: tuple[bytes | None, ...] = field(repr=False)
    result_formats: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Describe:
    """``kind`` is ``S`` for a prepared statement and ``P`` for a portal."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Close:
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Execute:
    """``rows`` is the limit, 0 for none."""

    portal: str
    rows: int


@dataclass(frozen=True, slots=True)
class Sync:
    pass


@dataclass(frozen=True, slots=True)
class Flush:
    pass


@dataclass(frozen=True, slots=True)
class Terminate:
    pass


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A function call by OID, which current clients do not send; it is refused."""


@dataclass(frozen=True, slots=True)
class CopyInput:
    """Data of a COPY FROM STDIN that was refused; it is dropped, as the protocol requires."""


First = StartupMessage | EncryptionRequest | Cancel
Message = (
    Password
    | SimpleQuery
    | Parse
    | Bind
    | Describe
    | Close
    | Execute
    | Sync
    | Flush
    | Terminate
    | FunctionCall
    | CopyInput
)


class _MessageBody:
    """The body of a message, read from its start to its end."""

    def __init__(self, body: bytes, called: str) -> None:
        self._body, self._at, self._called = body, 0, called

    def fail(self) -> ProtocolViolation:
        return ProtocolViolation(f"invalid message: {self._called}")

    def take(self, size: int) -> bytes:
        if size < 0 or self._at + size > len(self._body):
            raise self.fail()
        self._at += size
        return self._body[self._at - size : self._at]

    def text(self) -> str:
        end = self._body.find(b"\0", self._at)
        if end < 0:
            raise self.fail()
        taken = self._body[self._at : end]
        self._at = end + 1
        try:
            return taken.decode()
        except UnicodeDecodeError:
            raise ProtocolViolation(f"text of a message is not UTF-8: {self._called}") from None

    def number(self) -> int:
        return int(_LENGTH.unpack(self.take(4))[0])

    def count(self) -> int:
        return int(_COUNT.unpack(self.take(2))[0])

    def formats(self) -> tuple[int, ...]:
        formats = tuple(_SHORT.unpack(self.take(2))[0] for _ in range(self.count()))
        if any(form not in (0, 1) for form in formats):
            raise ProtocolViolation("a format code is neither 0 nor 1")
        return formats

    def value(self) -> bytes | None:
        size = self.number()
        return None if size == -1 else self.take(size)

    def end(self) -> None:
        if self._at != len(self._body):
            raise self.fail()


def _password(body: _MessageBody) -> Password:
    return Password(body.text())


def _query(body: _MessageBody) -> SimpleQuery:
    return SimpleQuery(body.text())


def _parse(body: _MessageBody) -> Parse:
    name, sql = body.text(), body.text()
    return Parse(name, sql, tuple(body.number() & 0xFFFFFFFF for _ in range(body.count())))


def _bind(body: _MessageBody) -> Bind:
    portal, statement, formats = body.text(), body.text(), body.formats()
    values = tuple(body.value() for _ in range(body.count()))
    if len(formats) not in (0, 1, len(values)):
        raise ProtocolViolation("a bind message has other counts of formats and parameters")
    return Bind(portal, statement, formats, values, body.formats())


def _target(body: _MessageBody) -> tuple[str, str]:
    kind, name = body.take(1).decode("latin-1"), body.text()
    if kind not in "SP":
        raise body.fail()
    return kind, name


def _execute(body: _MessageBody) -> Execute:
    return Execute(body.text(), max(body.number(), 0))


def _describe(body: _MessageBody) -> Describe:
    return Describe(*_target(body))


def _close(body: _MessageBody) -> Close:
    return Close(*_target(body))


def _ignored(kind: Callable[[], Message]) -> Callable[[_MessageBody], Message]:
    def read(body: _MessageBody) -> Message:
        body.take(len(body._body) - body._at)
        return kind()

    return read


_MESSAGES: Mapping[int, tuple[str, Callable[[_MessageBody], Message]]] = {
    ord("p"): ("password", _password),
    ord("Q"): ("query", _query),
    ord("P"): ("parse", _parse),
    ord("B"): ("bind", _bind),
    ord("D"): ("describe", _describe),
    ord("C"): ("close", _close),
    ord("E"): ("execute", _execute),
    ord("S"): ("sync", lambda _: Sync()),
    ord("H"): ("flush", lambda _: Flush()),
    ord("X"): ("terminate", lambda _: Terminate()),
    ord("F"): ("function call", _ignored(FunctionCall)),
    ord("d"): ("copy data", _ignored(CopyInput)),
    ord("c"): ("copy done", _ignored(CopyInput)),
    ord("f"): ("copy fail", _ignored(CopyInput)),
}


class FrontendReader:
    """Parses the bytes of a client into messages.

    Args:
        limit: maximum bytes of a message after the login.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._bytes = bytearray()
        self._started = False
        self._logged_in = False

    def feed(self, data: bytes) -> None:
        self._bytes += data

    @property
    def held(self) -> int:
        """Bytes of an incomplete message."""
        return len(self._bytes)

    @property
    def most(self) -> int:
        """Maximum bytes of a message in the present state."""
        return self._limit if self._logged_in else min(LOGIN_BYTES, self._limit)

    def log_in(self) -> None:
        """Accept messages of the full length from now on."""
        self._logged_in = True

    def next_first(self) -> First | None:
        """The first message, or None while it is incomplete. After a `Startup`, use `next`; after
        an `EncryptionRequest`, another first message follows.

        Raises:
            ProtocolViolation: these bytes are not a valid first message.
        """
        body = self._take(0, STARTUP_BYTES, "startup")
        if body is None:
            return None
        content = _MessageBody(body, "startup")
        code = content.number()
        if code == _CANCEL:
            process = content.number()
            secret = content.take(len(body) - 8)
            if not 4 <= len(secret) <= 256:
                raise content.fail()
            return Cancel(process, secret)
        if code in (_TLS, _GSS):
            content.end()
            return EncryptionRequest(code == _TLS)
        if code >> 16 != MAJOR:
            raise ProtocolViolation(
                f"unsupported frontend protocol {(code >> 16) & 0xFFFF}.{code & 0xFFFF}:"
                " this server speaks 3.0 and 3.2"
            )
        parameters = {}
        while name := content.text():
            parameters[name] = content.text()
        content.end()
        self._started = True
        return StartupMessage(code & 0xFFFF, parameters)

    def next(self) -> Message | None:
        """The next message after the start, or None while it is incomplete.

        Raises:
            ProtocolViolation: these bytes are not a valid message, or it exceeds the limit.
        """
        if not self._bytes:
            return None
        kind = self._bytes[0]
        if kind not in _MESSAGES:
            raise ProtocolViolation(f"invalid frontend message type {kind}")
        called, read = _MESSAGES[kind]
        body = self._take(1, self.most, called)
        if body is None:
            return None
        content = _MessageBody(body, called)
        message = read(content)
        content.end()
        return message

    def _take(self, before: int, limit: int, called: str) -> bytes | None:
        if len(self._bytes) < before + 4:
            return None
        (size,) = _LENGTH.unpack_from(self._bytes, before)
        if size < (8 if before == 0 else 4):
            raise ProtocolViolation(f"invalid length of a message: {called}")
        if size > limit:
            raise ProtocolViolation(
                f"a message has {size} bytes, more than the limit of {limit}: {called}"
            )
        if len(self._bytes) < before + size:
            return None
        body = bytes(self._bytes[before + 4 : before + size])
        del self._bytes[: before + size]
        return body


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column in RowDescription. ``size`` is in bytes, -1 for a variable length."""

    name: str
    oid: int
    size: int
    modifier: int
    form: int


def _message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + _LENGTH.pack(len(body) + 4) + body


def _texts(*texts: str) -> bytes:
    return b"".join(text.replace("\0", "").encode(errors="replace") + b"\0" for text in texts)


REFUSE_ENCRYPTION = b"N"
ACCEPT_TLS = b"S"
AUTHENTICATION_OK = _message(b"R", _LENGTH.pack(0))
ASK_PASSWORD = _message(b"R", _LENGTH.pack(3))
PARSE_COMPLETE = _message(b"1")
BIND_COMPLETE = _message(b"2")
CLOSE_COMPLETE = _message(b"3")
NO_DATA = _message(b"n")
EMPTY_QUERY = _message(b"I")
PORTAL_SUSPENDED = _message(b"s")
COPY_DONE = _message(b"c")


def negotiate_version(minor: int, unknown: Sequence[str]) -> bytes:
    """The server's newest minor version, and options that it does not know."""
    body = _LENGTH.pack(MAJOR << 16 | minor) + _LENGTH.pack(len(unknown))
    return _message(b"v", body + _texts(*unknown))


def parameter_status(name: str, value: str) -> bytes:
    return _message(b"S", _texts(name, value))


def backend_key(process: int, secret: bytes) -> bytes:
    return _message(b"K", _LENGTH.pack(process) + secret)


def ready(status: str) -> bytes:
    """``status``: ``I`` idle, ``T`` in a transaction, ``E`` in a failed transaction."""
    return _message(b"Z", status.encode())


def command_complete(tag: str) -> bytes:
    return _message(b"C", _texts(tag))


def row_description(columns: Sequence[ResultColumn]) -> bytes:
    body = bytearray(_COUNT.pack(len(columns)))
    for column in columns:
        body += _texts(column.name)
        body += struct.pack("!IhIhih", 0, 0, column.oid, column.size, column.modifier, column.form)
    return _message(b"T", bytes(body))


def parameter_description(types: Sequence[int]) -> bytes:
    return _message(b"t", _COUNT.pack(len(types)) + struct.pack(f"!{len(types)}I", *types))


def data_rows(columns: Sequence[Sequence[bytes | None]], rows: int) -> list[bytes]:
    """A DataRow for each row; the values are encoded column by column."""
    head = _COUNT.pack(len(columns))
    pack = _LENGTH.pack
    absent = pack(-1)
    sized = [
        [absent if value is None else pack(len(value)) + value for value in column]
        for column in columns
    ]
    bodies = map(b"".join, zip(*sized, strict=True)) if sized else (b"" for _ in range(rows))
    return [b"D" + pack(len(body) + 6) + head + body for body in bodies]


def copy_out(form: int, columns: int) -> bytes:
    """The start of a COPY to the client; ``form`` is 0 for text and CSV, 1 for binary."""
    body = struct.pack("!bH", form, columns) + struct.pack(f"!{columns}h", *[form] * columns)
    return _message(b"H", body)


def copy_data(data: bytes) -> bytes:
    return _message(b"d", data)


def notice_fields(fields: Iterable[tuple[str, str]]) -> bytes:
    return b"".join(code.encode() + _texts(text) for code, text in fields if text) + b"\0"


def error_response(severity: str, state: str, message: str, *, hint: str = "") -> bytes:
    """``state`` is the SQLSTATE."""
    return _message(
        b"E",
        notice_fields(
            (
                ("S", severity),
                ("V", severity),
                ("C", state),
                ("M", message),
                ("H", hint),
            )
        ),
    )
