"""Objects in an S3-compatible store, through ``obstore``.

Credentials come from ``AWS_ACCESS_KEY_ID`` and related variables, as for the SDKs. They never come
from the URL, which process lists and logs may show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING

from encrypted_records.errors import InvalidSetting, StoreUnavailable
from encrypted_records.server.objects.stores import (
    Range,
    cut_joined,
    find_reach,
    join_neighbours,
    lost,
)

try:
    import obstore
    from obstore import exceptions
except ImportError:  # pragma: no cover - an extra
    raise InvalidSetting(
        "the bulk store is S3, and obstore is not installed",
        hint="install encrypted-records[s3]",
    ) from None

if TYPE_CHECKING:
    from obstore.store import ClientConfig, S3Config, S3Store

#: Time for a request that no client waits for, and for all of its tries together. Far below
#: ``objects.WRITING_FOR``.
_REQUEST = timedelta(seconds=60)
_ALL_TRIES = timedelta(seconds=20)
_TRIES = 5
#: Seconds that a read waits for the next byte, unless the URL sets another limit (``patience``).
PATIENCE = 5
MOST_PATIENCE = 60
#: A read or write of at most this many bytes may take three and a half times ``PATIENCE`` in all,
#: with every try. That is below the 20 seconds after which a proxy gives up on the API, so that the
#: API can still answer with the error.
_SMALL_BYTES = 8 << 20
#: A larger write gets more time, at this rate in bytes per second: a proxy waits as long.
_LEAST_RATE = 1 << 20
#: The most objects read at once, by all threads of this process.
_READERS = 16
_OPTIONS = frozenset({"endpoint", "region", "virtual_hosted", "patience"})


class S3:
    """An S3 store: a prefix of a bucket.

    Args:
        store: client for large reads, and for operations that no request waits for.
        hasty: client for small reads, with shorter time limits because requests wait for them.
        writing: makes a client for a write that may take the given number of seconds longer than a
            small one.
        setting: whose URL names the store.
    """

    def __init__(
        self, store: S3Store, hasty: S3Store, writing: Callable[[int], S3Store], setting: str
    ) -> None:
        self._setting = setting
        self._store = store
        self._hasty = hasty
        self._writing = cache(writing)
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="bulk-store")

    def put(self, name: str, data: bytes) -> None:
        longer = len(data) // _SMALL_BYTES * (_SMALL_BYTES // _LEAST_RATE)
        with self._named():
            # In a single request, so that no part of an upload can be left behind.
            obstore.put(self._writing(longer), name, data, use_multipart=False)
            # Detects data that was truncated on the way, while the sender still has it.
            stored = obstore.head(self._hasty, name)["size"]
        if stored != len(data):
            raise StoreUnavailable("the bulk store has stored another length than was sent")

    def read(self, ranges: Sequence[Range]) -> list[bytes]:
        joined = join_neighbours(ranges)
        reach = find_reach(joined)
        objects = [(name, list(spans)) for name, spans in groupby(joined, lambda place: place.name)]
        if len(objects) == 1:
            contents = self._read_of(reach, *objects[0])
        else:
            parts = self._readers.map(lambda call: self._read_of(reach, *call), objects)
            contents = [data for part in parts for data in part]
        return cut_joined(ranges, joined, contents)

    def _read_of(self, reach: int, name: str, ranges: Sequence[Range]) -> list[bytes]:
        starts = [span.start for span in ranges]
        ends = [span.end for span in ranges]
        joined = join_neighbours(ranges, reach)
        small = sum(block.end - block.start for block in joined) <= _SMALL_BYTES
        store = self._hasty if small else self._store
        with self._named():
            try:
                got = obstore.get_ranges(store, name, starts=starts, ends=ends, coalesce=reach)
            except FileNotFoundError:
                raise lost(name) from None
        return [bytes(data) for data in got]

    def delete(self, names: Sequence[str]) -> None:
        with self._named():
            for name in names:
                try:
                    obstore.delete(self._store, name)
                except FileNotFoundError:
                    continue

    def free(self) -> int | None:
        return None  # the protocol has no request for it

    def keeps_versions(self, name: str) -> bool:
        with self._named():
            # Object lock requires versioning, too; "null" is the version while versioning is
            # suspended.
            return obstore.head(self._store, name)["version"] not in (None, "null")

    def listing(self) -> Iterator[tuple[str, int]]:
        with self._named():
            for page in obstore.list(self._store):
                for listed in page:
                    yield listed["path"], listed["size"]

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Convert errors of the store to ours, without their text, which may quote a request."""
        try:
            yield
        except (exceptions.BaseError, OSError, ValueError) as error:
            is_known = type(error) is not exceptions.GenericError
            outcome = (
                f"refuses: {type(error).__name__}" if is_known else "does not answer, or fails"
            )
            raise StoreUnavailable(f"the bulk store of {self._setting} {outcome}") from None


def connect(bucket: str, prefix: str, options: Mapping[str, str], setting: str) -> S3:
    """A store in a bucket; nothing is requested from it yet.

    Args:
        options: ``endpoint`` is a URL, ``region`` a name, ``virtual_hosted`` true or false.
        setting: whose URL names the store.

    Raises:
        InvalidSetting: an option is unknown or wrong.
    """
    from obstore.store import S3Store  # noqa: PLC0415 - as above

    unknown = set(options) - _OPTIONS
    endpoint = options.get("endpoint", "")
    patience = options.get("patience", str(PATIENCE))
    if (
        unknown
        or (endpoint and not endpoint.startswith(("http://", "https://")))
        or not (patience.isascii() and patience.isdigit() and 0 < int(patience) <= MOST_PATIENCE)
    ):
        raise InvalidSetting(
            "the URL of the bulk store has an invalid option",
            hint="S3 takes least, cache, endpoint=https://host, region, virtual_hosted and"
            f" patience, the seconds that a read waits for the next byte, up to {MOST_PATIENCE}",
        )
    config: S3Config = {"endpoint": endpoint} if endpoint else {}

    def made(client: ClientConfig, all_tries: timedelta) -> S3Store:
        return S3Store(
            bucket,
            prefix=prefix or None,
            region=options.get("region", "us-east-1"),
            virtual_hosted_style_request=options.get("virtual_hosted", "false") == "true",
            client_options={"allow_http": endpoint.startswith("http://"), **client},
            retry_config={"max_retries": _TRIES, "retry_timeout": all_tries},
            config=config,
        )

    wait = timedelta(seconds=int(patience))
    try:
        return S3(
            made({"timeout": _REQUEST}, _ALL_TRIES),
            # If no byte arrives, there is time for one more try.
            made({"timeout": 2 * wait, "connect_timeout": wait, "read_timeout": wait}, 1.5 * wait),
            # No time for another try: sending the body again takes as long again.
            lambda longer: made(
                {"timeout": 2 * wait + timedelta(seconds=longer), "connect_timeout": wait},
                1.5 * wait,
            ),
            setting,
        )
    except (exceptions.BaseError, ValueError) as error:
        raise InvalidSetting(
            f"the bulk store cannot be used: {type(error).__name__}",
            hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and name the endpoint",
        ) from None
