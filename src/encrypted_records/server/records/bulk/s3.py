"""Objects in an S3-compatible store, by ``obstore``.

Credentials come as the SDKs have them, from ``AWS_ACCESS_KEY_ID`` and its kin: never from the URL,
which lists of processes and logs may show.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from itertools import groupby
from typing import TYPE_CHECKING

from encrypted_records.errors import InvalidSetting, StoreUnavailable
from encrypted_records.server.records.bulk.protocol import (
    Range,
    cut_joined,
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
    from obstore.store import S3Config, S3Store

#: One request, and all of its tries together. Far below ``objects.WRITING_FOR``.
_REQUEST = timedelta(seconds=60)
_ALL_TRIES = timedelta(seconds=20)
_TRIES = 5
#: Objects that are read at once, by all threads of this process.
_READERS = 16
_OPTIONS = frozenset({"endpoint", "region", "virtual_hosted"})


class S3:
    """A store under a prefix of a bucket."""

    def __init__(self, store: S3Store) -> None:
        self._store = store
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="bulk-store")

    def put(self, name: str, data: bytes) -> None:
        with _named():
            # In one request, so that no piece of it can be left behind.
            obstore.put(self._store, name, data, use_multipart=False)

    def read(self, ranges: Sequence[Range]) -> list[bytes]:
        joined = join_neighbours(ranges)
        objects = [(name, list(own)) for name, own in groupby(joined, lambda one: one.name)]
        if len(objects) == 1:
            contents = self._read_of(*objects[0])
        else:
            parts = self._readers.map(lambda one: self._read_of(*one), objects)
            contents = [data for part in parts for data in part]
        return cut_joined(ranges, joined, contents)

    def _read_of(self, name: str, ranges: Sequence[Range]) -> list[bytes]:
        starts = [one.start for one in ranges]
        ends = [one.end for one in ranges]
        with _named():
            try:
                got = obstore.get_ranges(self._store, name, starts=starts, ends=ends)
            except FileNotFoundError:
                raise lost(name) from None
        return [bytes(data) for data in got]

    def delete(self, names: Sequence[str]) -> None:
        with _named():
            for name in names:
                try:
                    obstore.delete(self._store, name)
                except FileNotFoundError:
                    continue

    def free(self) -> int | None:
        return None  # the protocol has no question for it

    def keeps_versions(self, name: str) -> bool:
        with _named():
            # Object lock needs versions, too; "null" stands where versioning was suspended.
            return obstore.head(self._store, name)["version"] not in (None, "null")

    def listing(self) -> Iterator[tuple[str, int]]:
        with _named():
            for some in obstore.list(self._store):
                for one in some:
                    yield one["path"], one["size"]


def connect(bucket: str, prefix: str, options: Mapping[str, str]) -> S3:
    """A store in a bucket; nothing is asked yet.

    Args:
        options: ``endpoint`` is a URL, ``region`` a name, ``virtual_hosted`` true or false.

    Raises:
        InvalidSetting: an option is unknown or wrong.
    """
    from obstore.store import S3Store  # noqa: PLC0415 - as above

    unknown = set(options) - _OPTIONS
    endpoint = options.get("endpoint", "")
    if unknown or (endpoint and not endpoint.startswith(("http://", "https://"))):
        raise InvalidSetting(
            "the URL of the bulk store has an option that cannot be",
            hint="S3 takes least, endpoint=https://host, region and virtual_hosted",
        )
    config: S3Config = {"endpoint": endpoint} if endpoint else {}
    try:
        store = S3Store(
            bucket,
            prefix=prefix or None,
            region=options.get("region", "us-east-1"),
            virtual_hosted_style_request=options.get("virtual_hosted", "false") == "true",
            client_options={"allow_http": endpoint.startswith("http://"), "timeout": _REQUEST},
            retry_config={"max_retries": _TRIES, "retry_timeout": _ALL_TRIES},
            config=config,
        )
    except (exceptions.BaseError, ValueError) as error:
        raise InvalidSetting(
            f"the bulk store cannot be used: {type(error).__name__}",
            hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and name the endpoint",
        ) from None
    return S3(store)


@contextmanager
def _named() -> Iterator[None]:
    """Have errors of the store say what they mean here, without its words, which may quote a
    request."""
    try:
        yield
    except (exceptions.BaseError, OSError, ValueError) as error:
        raise StoreUnavailable(
            f"the bulk store does not answer, or refuses: {type(error).__name__}"
        ) from None
