"""The bulk store that ``ERS_BULK_URL`` names."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from django.conf import settings

from encrypted_records.errors import InvalidSetting
from encrypted_records.server.objects.both import Both
from encrypted_records.server.objects.files import Files
from encrypted_records.server.objects.protocol import BulkStore

#: A part of fewer bytes stays in the database, unless the URL says otherwise (``least``).
LEAST_BYTES = 128 << 10
#: So much of a store that is far away is kept on this machine, unless the URL says otherwise
#: (``cache``).
CACHE_MIB = 1024


@dataclass(frozen=True)
class Chosen:
    """A store, and how many bytes a part must have to lie there; without one all parts stay in the
    database. ``cache`` is how many bytes of it an API keeps on its own disk."""

    store: BulkStore | None
    least: int
    cache: int = 0


@cache
def chosen() -> Chosen:
    """The store of this process.

    Raises:
        InvalidSetting: this service cannot store by this URL.
    """
    own = choose(settings.BULK_URL)
    if not settings.BULK_BEFORE:
        return own
    before = choose(settings.BULK_BEFORE).store
    if own.store is None or before is None or settings.BULK_BEFORE == settings.BULK_URL:
        raise InvalidSetting(
            "objects cannot move from the bulk store of ERS_BULK_BEFORE to that of ERS_BULK_URL",
            hint="name two stores of objects, file:///path or s3://bucket/prefix",
        )
    return Chosen(Both(own.store, before), own.least, own.cache)


def choose(url: str) -> Chosen:
    """The store that a URL names; nothing of it is asked yet.

    Raises:
        InvalidSetting: it names none, or what it takes is not installed.
    """
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    least = options.pop("least", str(LEAST_BYTES))
    if not (least.isascii() and least.isdigit() and len(least) < 12):
        raise _invalid("least is no number of bytes")
    cache = options.pop("cache", str(CACHE_MIB)) if parts.scheme == "s3" else "0"
    if not (cache.isascii() and cache.isdigit() and len(cache) < 8):
        raise _invalid("cache is no number of MiB")
    match parts.scheme:
        case "database" if not (parts.netloc or parts.path.strip("/") or options):
            return Chosen(None, 0)
        case "file" if parts.path.startswith("/") and parts.netloc in ("", "localhost"):
            if options:
                raise _invalid("a store of files takes least, and no other option")
            return Chosen(Files(Path(unquote(parts.path))), int(least))
        case "s3" if parts.netloc:
            # An extra.
            from encrypted_records.server.objects.s3 import connect  # noqa: PLC0415

            store = connect(parts.netloc, parts.path.strip("/"), options)
            return Chosen(store, int(least), int(cache) << 20)
    raise _invalid("it is no URL of a store")


def _invalid(what: str) -> InvalidSetting:
    return InvalidSetting(
        f"the URL of the bulk store cannot be used: {what}",
        hint="use file:///path, s3://bucket/prefix?endpoint=https://host, or database://",
    )
