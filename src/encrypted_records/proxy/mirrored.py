"""A proxy that reads from a mirror instead of an API (docs/how-to/mirror.md).

Answers of a mirror are verified as an API's answers are. The mirror states the age of the copy,
unverified; the time of the newest commit is signed by the member who made it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from encrypted_records import runtime
from encrypted_records.client.api import Api
from encrypted_records.client.proxy.records import MirrorAge
from encrypted_records.errors import ApiFailed, ErsError, NotAllowed, RosterOlder
from encrypted_records.index.log.order import LogOlder
from encrypted_records.index.roster.belief import RosterForked
from encrypted_records.model import strict_json

#: Seconds for which the mirror's description of itself is cached.
FRESH_SECONDS = 5.0
HEADER = "X-ERS-Mirror"


class Copied(msgspec.Struct, frozen=True):
    """``source`` is the API that was copied, ``taken`` when."""

    source: str
    taken: datetime

    @property
    def seconds(self) -> int:
        """The age of the copy."""
        return max(0, int(runtime.wall() - self.taken.timestamp()))

    @property
    def age(self) -> str:
        """The age of the copy as text for people."""
        for size, name in ((86_400, "day"), (3600, "hour"), (60, "minute")):
            if self.seconds >= size:
                count = self.seconds // size
                return f"{count} {name}{'s' if count > 1 else ''}"
        return "less than a minute"

    @property
    def header(self) -> str:
        return f"taken={_text(self.taken)}; age={self.seconds}"


class _Status(msgspec.Struct):
    mirror: Copied


@dataclass(slots=True)
class Mirrored:
    """
    Attributes:
        place: the URL or the folder of the mirror, as the operator has named it.
    """

    place: str
    _api: Api
    _known: Copied | None = None
    _checked_at: float = field(default=float("-inf"))

    async def look(self) -> Copied | None:
        """The mirror's description of itself; None if it does not answer.

        Raises:
            ApiFailed: ``not_a_mirror``; the server is not a mirror.
        """
        now = runtime.monotonic()
        if now - self._checked_at < FRESH_SECONDS:
            return self._known
        try:
            answer = await self._api.transport.request("GET", "/api/status/", repeatable=False)
        except ErsError:
            return self._known
        try:
            self._known = msgspec.json.decode(answer.body, type=_Status).mirror
        except strict_json.UNREADABLE:
            raise ApiFailed(
                "what --mirror names is not a mirror",
                code="not_a_mirror",
                hint="name a folder that ers mirror has written, or the address of ers api"
                " --mirror",
            ) from None
        self._checked_at = now
        return self._known

    async def describe(self, newest: int) -> MirrorAge:
        """The age of an answer.

        Args:
            newest: the time of the newest commit, in milliseconds since 1970; 0 without one.
        """
        copied = await self.look()
        moment = datetime.fromtimestamp(newest // 1000, UTC)
        return MirrorAge(
            taken=None if copied is None else _text(copied.taken),
            age=None if copied is None else copied.seconds,
            newest_commit=_text(moment) if newest else None,
        )

    @property
    def known(self) -> Copied | None:
        """The latest description that the mirror gave of itself."""
        return self._known

    def refuse_change(self) -> NotAllowed:
        source = "" if self._known is None else f", {self._known.source}"
        return NotAllowed(
            "this proxy reads from a mirror, where nothing can be changed",
            code="read_only_mirror",
            hint=f"make the change through a proxy of the API that was copied{source}",
        )

    def name_stale(self, error: ErsError) -> ErsError:
        """Convert an error if its reason is that the copy is older than the remembered state."""
        if not isinstance(error, LogOlder | RosterOlder) or isinstance(error, RosterForked):
            return error
        return type(error)(
            "the copy is stale: this proxy has seen more than it holds: " + error.message,
            code="mirror_stale",
            hint="copy it again with ers mirror, or use a newer copy; to read this one all the"
            " same, start the proxy with --accept-stale",
        )


class AgeHeader:
    """ASGI middleware: adds the age of the copy to every answer, as the header ``X-ERS-Mirror``."""

    def __init__(self, app: ASGIApp, mirrored: Mirrored | None) -> None:
        self._app = app
        self._mirrored = mirrored

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        mirrored = self._mirrored
        if mirrored is None or scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_age(message: Message) -> None:
            if message["type"] == "http.response.start":
                copied: Copied | None = None
                with suppress(ErsError):  # the answer itself reports the error
                    copied = await mirrored.look()
                MutableHeaders(scope=message)[HEADER] = (
                    "age=unknown" if copied is None else copied.header
                )
            await send(message)

        await self._app(scope, receive, send_with_age)


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
