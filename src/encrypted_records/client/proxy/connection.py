"""The shared base of all parts of the proxy's client: one transport, plain values, and resources.

Every value is encoded exactly, and equal values are encoded alike; other values are refused by the
name of their kind. The JSON encoder alone is not enough: it rounds the offset of an instant to
minutes, and turns bytes into text.

Resources are organizations, datasets, schemas and other items of the API's collections. They are
the JSON objects that docs/http-api.md describes. Each has a ``url``, a path, by which it is read,
changed and deleted.
"""

from __future__ import annotations

import base64
import copy
import datetime
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import Any, TypeVar, overload
from urllib.parse import urlsplit
from uuid import UUID

import msgspec

from encrypted_records import runtime
from encrypted_records.client.limits import STANDARD, ClientLimits
from encrypted_records.client.messages import Closing, Response
from encrypted_records.client.proxy.transport import Device, ProxyTransport, device_of, explain
from encrypted_records.client.transport import Authorization, on_retry
from encrypted_records.errors import BadInput, Conflict, Flaw, InvalidSetting
from encrypted_records.model import resources, strict_json
from encrypted_records.model.credentials import DeviceSecret, looks_like_service_key

#: Types that JSON represents directly.
AS_IT_IS = frozenset({str, int, bool, type(None)})
STORABLE = "texts, finite numbers, true, false and None can be sent, and objects and lists of these"
NO_NUMBER = "NaN and infinities cannot be stored"
_NANOSECONDS = 10**9
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MINUTE = datetime.timedelta(minutes=1)


class _Unsayable(Exception):
    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail
        self.pointer = ""


def plain(body: Any) -> Any:
    """``body`` with all values converted to JSON types.

    Raises:
        BadInput: a value has no JSON form. The message names its position and kind, never the
            value.
    """
    try:
        return _plain(body)
    except _Unsayable as error:
        flaws = (Flaw("type", error.detail, pointer=error.pointer or None),)
        raise BadInput(error.detail, hint=STORABLE, flaws=flaws) from None


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind in AS_IT_IS:
        return value
    if kind is float or kind is Decimal:
        return _number(value)
    library = kind.__module__.partition(".")[0]
    if library == "pandas" and kind.__name__ in ("NAType", "NaTType"):
        return None  # before dates: NaT calls itself one
    if library == "numpy":
        return _of_numpy(value)
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, float | Decimal):
        return _number(value)
    if isinstance(value, Mapping):
        return {name: _at(name, item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset) and not hasattr(kind, "n_sequence_fields"):
        return [_at(place, item) for place, item in enumerate(value)]
    if isinstance(value, datetime.date | datetime.time | datetime.timedelta | UUID):
        return _as_text(value)
    if isinstance(value, bytes | bytearray | memoryview):
        detail = f"{kind.__name__} cannot be stored; make them a text, such as one of base64"
        raise _Unsayable(detail)
    if library == "pandas" or hasattr(kind, "n_sequence_fields"):
        raise _Unsayable(f"a {kind.__name__} cannot be stored; make it a text or a number")
    return value  # the encoder knows it, or names its kind


def _number(value: float | Decimal) -> float | Decimal:
    if not (value.is_finite() if isinstance(value, Decimal) else isfinite(value)):
        raise _Unsayable(NO_NUMBER)
    return value


def _at(place: str | int, value: Any) -> Any:
    try:
        return _plain(value)
    except _Unsayable as error:
        token = str(place).replace("~", "~0").replace("/", "~1")
        error.pointer = f"/{token}{error.pointer}"
        raise


def _of_numpy(value: Any) -> Any:
    kind = type(value).__name__
    if kind == "datetime64":
        text = str(value)
        return None if text == "NaT" else _even_decimals(text)
    made = value.item() if hasattr(value, "item") and not getattr(value, "shape", ()) else value
    if kind == "timedelta64" or type(made).__module__ == "numpy":
        raise _Unsayable(f"a {kind} of NumPy cannot be stored; make it a text or a number")
    return _plain(made)


def _as_text(value: datetime.date | datetime.time | datetime.timedelta | UUID) -> str:
    if isinstance(value, datetime.datetime):
        return _instant(value)
    if isinstance(value, datetime.timedelta):
        microseconds = value // datetime.timedelta(microseconds=1)
        return duration_of(1000 * microseconds + int(getattr(value, "nanoseconds", 0)))
    return str(value) if isinstance(value, UUID) else value.isoformat()


def _instant(value: datetime.datetime) -> str:
    offset = value.utcoffset()
    try:
        # RFC 3339 offsets have only minutes, old zones have seconds: keep the instant, not the
        # offset.
        moment = value.astimezone(datetime.UTC) if offset and offset % _MINUTE else value
        text = moment.isoformat()
    except (OverflowError, ValueError):
        raise _Unsayable("an instant is outside the years 1 to 9999 in UTC") from None
    return text if moment.utcoffset() != datetime.timedelta(0) else f"{text[:-6]}Z"


def _even_decimals(text: str) -> str:
    """A time with 0, 6 or 9 decimals, like those of pandas, or with as many as it needs."""
    seconds, _, decimals = text.partition(".")
    decimals = decimals.rstrip("0")
    if not decimals:
        return f"{seconds}:00" if "T" in seconds and seconds.count(":") == 1 else seconds
    return f"{seconds}.{decimals.ljust(6 if len(decimals) <= 6 else 9, '0')}"


def duration_of(nanoseconds: int) -> str:
    """A duration as text."""
    seconds, nanos = divmod(abs(nanoseconds), _NANOSECONDS)
    decimals = f".{nanos:09d}".rstrip("0") if nanos else ""
    return f"{'-' if nanoseconds < 0 else ''}PT{seconds}{decimals}S"


def instant_of(nanoseconds: int, zone: datetime.tzinfo | None) -> datetime.datetime | str:
    """An instant from libraries that count nanoseconds since 1970; a text if it is not a whole
    number of microseconds, Python's resolution.

    Args:
        zone: its time zone; None for local times without a zone.
    """
    seconds, nanos = divmod(nanoseconds, _NANOSECONDS)
    moment = _EPOCH + datetime.timedelta(seconds=seconds)
    moment = moment.replace(tzinfo=None) if zone is None else moment.astimezone(zone)
    if nanos % 1000 == 0:
        return moment.replace(microsecond=nanos // 1000)
    text = _instant(moment)
    return f"{text[:19]}.{nanos:09d}{text[19:]}"


def time_of(nanoseconds: int) -> datetime.time | str:
    """A time of day; as :func:`instant_of`."""
    moment = instant_of(nanoseconds, None)
    return moment.time() if isinstance(moment, datetime.datetime) else moment.partition("T")[2]


T = TypeVar("T")


def basic(email: str, password: str) -> str:
    """The Authorization value of Basic credentials (RFC 7617, UTF-8)."""
    return "Basic " + base64.b64encode(f"{email}:{password}".encode()).decode()


class Connection(Closing):
    """A proxy at ``proxy_url``, used by one account or by none.

    Args:
        email, password: Basic credentials of the caller.
        token: instead, an API token from ``ers token create NAME``, or the string of a service from
            ``ers service create NAME``, which is only sent to a proxy.
        auth: instead of both, a function that returns an Authorization value.
        headers: sent with every request.
        device: the secret of a registered device, or a :func:`.transport.new_device`.
        door: this machine's user's secret for a proxy of the same user.
        requires_door: whether to send requests only to a server that knows the door.
        limits: sizes of requests and answers, and timeouts.
    """

    def __init__(
        self,
        proxy_url: str,
        *,
        email: str | None = None,
        password: str | None = None,
        token: str | None = None,
        auth: Authorization | None = None,
        headers: Mapping[str, str] | None = None,
        device: Device | str | None = None,
        door: DeviceSecret | None = None,
        requires_door: bool = False,
        limits: ClientLimits = STANDARD,
    ) -> None:
        self.limits = limits
        known = basic(email, password) if email is not None and password is not None else None
        if token is not None:
            if not token.strip().isprintable():
                raise explain(
                    InvalidSetting(
                        "this is not a token: it has line ends or other control characters",
                        hint="give the client the token as ers token create printed it",
                    )
                )
            known = f"Bearer {token.strip()}"
        if (auth or known) and "@" in urlsplit(proxy_url).netloc:
            raise explain(
                InvalidSetting(
                    "the address of the proxy has credentials, and others are given as well",
                    hint="leave one of them out",
                )
            )
        service = token is not None and looks_like_service_key(token)
        self._transport = ProxyTransport(
            proxy_url,
            auth=auth or known,
            headers=headers,
            device=device_of(device) if isinstance(device, str) else device,
            door=door,
            requires_door=requires_door,
            service=service,
            timing=limits.timing,
        )

    async def close(self) -> None:
        await self._transport.close()

    async def _pause(self, seconds: float) -> None:
        """Wait before an upload continues, or a job is asked for again."""
        if tell := on_retry.get():
            tell(self._transport.base_url, seconds)
        await runtime.sleep(seconds)

    async def _ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool | None = None,
    ) -> Response:
        """Send JSON with exact numbers."""
        sent = dict(headers or {})
        if body is not None:
            sent["Content-Type"] = "application/json"
        data = None if body is None else encode(body)
        return await self._transport.request(
            method, path, data=data, headers=sent, params=params, repeatable=repeatable
        )

    async def _list(self, path: str, kind: type[T], **filters: str) -> AsyncIterator[T]:
        """Items of a list, fetched page by page."""
        after: str | None = path
        params: Mapping[str, str] | None = {"limit": str(self.limits.listed), **filters}
        while after is not None:
            answer = await self._ask("GET", after, params=params)
            page = answer.convert(resources.ListPage[kind])  # type: ignore[valid-type] # of a variable
            after, params = page.next, None  # the link holds them
            for result in page.results:
                yield result


def if_match(etag: str | None) -> dict[str, str]:
    """The header of a request that applies only while this is the ETag; None makes no condition."""
    return {} if etag is None else {"If-Match": etag}


C = TypeVar("C", bound=Connection)


def begin_anew(client: C) -> C:
    """The same client without a connection, for a fork, which must not use those of its parent."""
    again = copy.copy(client)
    again._transport = client._transport.begin_anew()
    return again


@overload
def several(names: str | Sequence[str]) -> list[str]: ...


@overload
def several(names: str | Sequence[str] | None) -> list[str] | None: ...


def several(names: str | Sequence[str] | None) -> list[str] | None:
    """A list of names, also of a single name: a text would be a sequence of its letters."""
    if names is None:
        return None
    return [names] if isinstance(names, str) else list(names)


def encode(body: Any) -> bytes:
    """``body`` as JSON with exact numbers; Python values as in :func:`plain`.

    Raises:
        BadInput: a value has no JSON form. The message names its position and kind, never the
            value.
    """
    try:
        return encode_plain(plain(body))
    except BadInput as error:
        explain(error)
        raise


def encode_plain(body: Any) -> bytes:
    """Encode plain values like :func:`encode`.

    Raises:
        BadInput: as for :func:`encode`, without the position of the value.
    """
    try:
        return strict_json.encode(body)
    except UnicodeEncodeError:
        raise BadInput("a text contains half of a surrogate pair", hint=STORABLE) from None
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        # The library says "Encoding objects of type pandas.Timestamp is unsupported".
        kind = re.search(r"objects of type ([\w.]+)", str(error))
        value = f"a {kind[1].rpartition('.')[2]}" if kind else "a value of this kind"
        raise BadInput(f"{value} cannot be sent as JSON", hint=STORABLE) from None


Resource = Mapping[str, Any]


class ShownDataset(resources.DatasetResource, frozen=True, kw_only=True):
    """A dataset as a proxy shows it; ``signed`` is absent if there is no roster."""

    signed: bool | msgspec.UnsetType | None = msgspec.UNSET


class ShownSchema(resources.SchemaResource, frozen=True, kw_only=True):
    """A schema as a proxy shows it; ``signed`` is absent if there is no roster."""

    signed: bool | msgspec.UnsetType | None = msgspec.UNSET


Named = TypeVar("Named", resources.OrganizationResource, ShownDataset, ShownSchema)
#: The collections of organizations, datasets and schemas, which have names.
COLLECTIONS: Mapping[type, str] = {
    resources.OrganizationResource: "organizations",
    ShownDataset: "datasets",
    ShownSchema: "schemas",
}


class Resources(Connection):
    async def organizations(self) -> AsyncIterator[resources.OrganizationResource]:
        """The account's organizations."""
        async for organization in self.read_all(resources.OrganizationResource):
            yield organization

    async def read_all(self, kind: type[Named], /, **filters: str) -> AsyncIterator[Named]:
        """All organizations, datasets or schemas that the filters select."""
        async for resource in self._list(f"/api/{COLLECTIONS[kind]}/", kind, **filters):
            yield resource

    async def read(self, kind: type[Named], url: str) -> Named:
        """The organization, dataset or schema at a path."""
        return (await self._transport.request("GET", url)).convert(kind)

    async def update(self, /, resource: Named, **members: Any) -> Named:
        """Change members of an organization, a dataset or a schema, as :meth:`change` does."""
        return await self._write(type(resource), "PATCH", resource.url, **members)

    async def _write(self, kind: type[T], method: str, path: str, /, **members: Any) -> T:
        body = {name: value for name, value in members.items() if value is not None}
        return (await self._ask(method, path, body)).convert(kind)

    async def listing(self, /, collection: str, **filters: str) -> AsyncIterator[Resource]:
        """All resources of a collection, page after page.

        Args:
            collection: such as ``datasets``.
            filters: the collection's filters in docs/http-api.md, such as ``slug="people"``.
        """
        async for resource in self._list(f"/api/{collection}/", dict[str, Any], **filters):
            yield resource

    async def resource(self, url: str) -> Resource:
        """The resource at a path."""
        return (await self._transport.request("GET", url)).convert(dict[str, Any])

    async def create(self, /, collection: str, **members: Any) -> Resource:
        """Create a resource; members that are None are left out."""
        return await self._write(dict[str, Any], "POST", f"/api/{collection}/", **members)

    async def change(self, /, url: str, **members: Any) -> Resource:
        """Change members of a resource; members that are None stay unchanged."""
        return await self._write(dict[str, Any], "PATCH", url, **members)

    async def delete(self, url: str, *, cascade: bool = False) -> None:
        """Delete a resource.

        Args:
            cascade: delete its content, too: a dataset's schemas, a schema's records.
        """
        try:
            await self._ask("DELETE", url, params={"cascade": "true"} if cascade else None)
        except Conflict as error:
            if error.reason not in ("dataset_not_empty", "schema_not_empty"):
                raise
            hint = "delete them first, or repeat with cascade=True (ers: --cascade)"
            raise Conflict(error.message, code=error.reason, hint=hint) from None
