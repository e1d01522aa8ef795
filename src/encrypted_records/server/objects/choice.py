"""The bulk store that ``ERS_BULK_URL`` names, or a pair of stores while objects move.

With a pair, new objects are written to the new store, and objects are read from either. So the API
can serve while objects move, without a table of their locations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from heapq import merge
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from django.conf import settings

from encrypted_records.errors import InvalidSetting, ObjectLost
from encrypted_records.server.objects.stores import BulkStore, Files, Range

#: A smaller part stays in the database, unless the URL sets another limit (``least``).
LEAST_BYTES = 128 << 10
#: Size of the disk cache of a remote store, unless the URL sets another size (``cache``).
CACHE_MIB = 1024


@dataclass(frozen=True)
class Chosen:
    """A store, and the least bytes of a part that is stored in it; without a store all parts stay
    in the database. ``cache`` is the size of an API's disk cache in bytes.
    """

    store: BulkStore | None
    least: int
    cache: int = 0


@cache
def chosen() -> Chosen:
    """The store of this process.

    Raises:
        InvalidSetting: this service cannot use this URL.
    """
    chosen_store = choose(settings.BULK_URL)
    if not settings.BULK_BEFORE:
        return chosen_store
    before = choose(settings.BULK_BEFORE, "ERS_BULK_BEFORE").store
    if chosen_store.store is None or before is None or settings.BULK_BEFORE == settings.BULK_URL:
        raise InvalidSetting(
            "objects cannot move from the bulk store of ERS_BULK_BEFORE to that of ERS_BULK_URL",
            hint="name two stores of objects, file:///path or s3://bucket/prefix",
        )
    return Chosen(Both(chosen_store.store, before), chosen_store.least, chosen_store.cache)


def choose(url: str, setting: str = "ERS_BULK_URL") -> Chosen:
    """The store that a URL names; nothing is requested from it yet.

    Raises:
        InvalidSetting: the URL names no store, or a package is not installed.
    """
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    least = options.pop("least", str(LEAST_BYTES))
    if not (least.isascii() and least.isdigit() and len(least) < 12):
        raise _invalid("least is not a number of bytes")
    cache = options.pop("cache", str(CACHE_MIB)) if parts.scheme == "s3" else "0"
    if not (cache.isascii() and cache.isdigit() and len(cache) < 8):
        raise _invalid("cache is not a number of MiB")
    match parts.scheme:
        case "database" if not (parts.netloc or parts.path.strip("/") or options):
            return Chosen(None, 0)
        case "file" if parts.path.startswith("/") and parts.netloc in ("", "localhost"):
            if options:
                raise _invalid("a store of files takes least, and no other option")
            return Chosen(Files(Path(unquote(parts.path))), int(least))
        case "s3" if parts.netloc:
            # Imported here because it is an optional extra.
            from encrypted_records.server.objects.s3 import connect  # noqa: PLC0415

            store = connect(parts.netloc, parts.path.strip("/"), options, setting)
            return Chosen(store, int(least), int(cache) << 20)
    raise _invalid("it is not the URL of a store")


def _invalid(reason: str) -> InvalidSetting:
    return InvalidSetting(
        f"the URL of the bulk store cannot be used: {reason}",
        hint="use file:///path, s3://bucket/prefix?endpoint=https://host, or database://",
    )


class Both:
    """``new``, and ``before`` for objects that have not moved yet."""

    def __init__(self, new: BulkStore, before: BulkStore) -> None:
        self.new, self.before = new, before

    def put(self, name: str, data: bytes) -> None:
        self.new.put(name, data)

    def read(self, ranges: Sequence[Range]) -> list[bytes]:
        try:
            return self.new.read(ranges)
        except ObjectLost:
            pass
        found: dict[Range, bytes] = {}
        for _, ranges_of_object in groupby(sorted(set(ranges)), lambda byte_range: byte_range.name):
            of_object = list(ranges_of_object)
            found.update(zip(of_object, self._read_one(of_object), strict=True))
        return [found[span] for span in ranges]

    def _read_one(self, ranges: Sequence[Range]) -> list[bytes]:
        # An object that moves between the two requests is then in the new store.
        for store in (self.new, self.before):
            try:
                return store.read(ranges)
            except ObjectLost:
                continue
        return self.new.read(ranges)

    def free(self) -> int | None:
        return self.new.free()

    def keeps_versions(self, name: str) -> bool:
        return self.new.keeps_versions(name)

    def delete(self, names: Sequence[str]) -> None:
        self.before.delete(names)
        self.new.delete(names)

    def listing(self) -> Iterator[tuple[str, int]]:
        # The larger size: a move that is running or was killed may have left a truncated object.
        both = merge(self.before.listing(), self.new.listing())
        for name, same in groupby(both, itemgetter(0)):
            yield name, max(size for _, size in same)
