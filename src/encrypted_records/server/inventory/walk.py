"""One walk over all objects: those that the database names, those that the store holds, and where
the two differ.

Verifying, reconciling, moving and the weekly report of unknown objects are what each does with the
entries of this walk. Both sides come in the order of names and the database's a page at a time, so
the walk takes the same memory however many objects there are.

The walk takes no lock: objects are written, moved and deleted meanwhile, and either side may be
older than the other. The name of an object is in the database before its first byte and until after
its last. So a listed object is looked up once more before it counts as unknown, and
:func:`is_missing` asks both sides once more about an object that is not listed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from django.db import connection
from django.db.models import Exists, OuterRef, Q, QuerySet

from encrypted_records.server.db.statements import fetch
from encrypted_records.server.objects import choice, objects, stores
from encrypted_records.server.records.models import BulkObject, PagePart, RowPart

#: Rows of the database that are held at a time.
PAGE = 5000
#: By bytes, as stores list names; PostgreSQL's usual order depends on the locale of the database.
_NEXT = {
    "postgresql": "SELECT id, name, state, size FROM bulk_object"
    " WHERE name ~>~ %s ORDER BY name USING ~<~ LIMIT %s",
    "sqlite": "SELECT id, name, state, size FROM bulk_object"
    " WHERE name > %s ORDER BY name LIMIT %s",
}
#: The most unknown objects whose names are logged.
_SHOWN = 5

_log = logging.getLogger(__name__)


class NamedObject(NamedTuple):
    """A row of the database that names an object; as a model it takes four times as long."""

    pk: int
    name: str
    state: str
    size: int


class ObjectEntry(NamedTuple):
    """An object: its row, None if the database does not know it; and its size in the store, None if
    it is not listed there.
    """

    name: str
    stored: NamedObject | None
    size: int | None


def walk(bulk_store: stores.BulkStore | None) -> Iterator[ObjectEntry]:
    """Every object that the database names or that this store lists, in the order of names.

    Raises:
        StoreUnavailable: the store is unavailable or fails.
    """
    named: Iterator[tuple[str, Any]] = ((stored.name, stored) for stored in _named())
    listed: Iterator[tuple[str, Any]] = iter(()) if bulk_store is None else bulk_store.listing()
    for name, same in groupby(merge(named, listed, key=itemgetter(0)), itemgetter(0)):
        stored: NamedObject | None = None
        size: int | None = None
        for _, entry in same:
            if isinstance(entry, NamedObject):
                stored = entry
            else:
                size = max(entry, size or 0)
        if stored is None:
            by_name = BulkObject.objects.filter(name=name)
            row = by_name.values_list("pk", "name", "state", "size").first()
            stored = None if row is None else NamedObject(*row)
        yield ObjectEntry(name, stored, size)


def _named() -> Iterator[NamedObject]:
    last = ""
    while page := fetch(_NEXT[connection.vendor], last, PAGE):
        yield from (NamedObject(*row) for row in page)
        last = page[-1][1]


def strangers() -> Iterator[str]:
    """Names of objects in the store that the database does not know.

    No sweep deletes them: they may belong to a database that was just restored, or to another
    database.

    Raises:
        StoreUnavailable: the store is unavailable or fails.
    """
    bulk_store = choice.chosen().store
    entries = iter(()) if bulk_store is None else walk(bulk_store)
    return (entry.name for entry in entries if entry.stored is None)


def report_strangers() -> None:
    """Log the unknown objects in the bulk store.

    Raises:
        StoreUnavailable: the store is unavailable or fails.
    """
    if found := list(strangers()):
        names = ", ".join(found[:_SHOWN])
        _log.warning("the bulk store contains %d unknown objects: %s", len(found), names)


def is_needed(stored: BulkObject | NamedObject) -> bool:
    """Whether the bytes of an object must be in the store, now."""
    needed = BulkObject.objects.filter(
        Q(state__in=(objects.STORED, objects.NAMED))
        | Exists(RowPart.objects.filter(object_id=OuterRef("pk")))
        | Exists(PagePart.objects.filter(object_id=OuterRef("pk"))),
        pk=stored.pk,
    )
    return needed.exists()


def is_missing(bulk_store: stores.BulkStore | None, stored: BulkObject | NamedObject) -> bool:
    """Whether an object is needed, and missing from the store or cut short.

    Raises:
        StoreUnavailable: the store is unavailable or fails.
    """
    if bulk_store is not None and stores.is_stored(bulk_store, stored.name, stored.size):
        return False
    return is_needed(stored)  # else it was deleted or rewritten meanwhile


def numbers(rows: QuerySet[Any]) -> Iterator[list[int]]:
    """The numbers of these groups or segments, in order, some at a time."""
    primary_keys = rows.order_by("pk").values_list("pk", flat=True)
    page = list(primary_keys[:PAGE])
    while page:
        yield page
        page = list(primary_keys.filter(pk__gt=page[-1])[:PAGE])
