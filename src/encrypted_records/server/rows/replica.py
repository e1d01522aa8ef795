"""Rows and pages from a replica of the database, where one is set and has them.

What decides is asked of the primary, always: who may read, which version the log has, which rows
are gone, which number a group or segment has. Rows and pages themselves are never changed once a
commit has named them. So a replica that has seen that commit has the right ones, however far it is
behind; of what it lacks, and where it is away or fails, the primary is asked. No answer shows which
of the two it came from.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, Error, connections

from encrypted_records.errors import ObjectAltered, ObjectLost
from encrypted_records.server.db.configuration import REPLICA
from encrypted_records.server.records.models import IndexSegment, RecordGroup
from encrypted_records.server.records.store import Key, StoredSealedRow
from encrypted_records.server.rows import contents

T = TypeVar("T")

#: A replica that has failed is left alone for so long.
AGAIN_SECONDS = 10.0

_log = logging.getLogger(__name__)


class _Failed:
    """Until when nobody asks the replica; of this process."""

    until = 0.0


def rows_at(groups: Mapping[int, bytes], keys: Sequence[Key]) -> dict[Key, StoredSealedRow]:
    """Rows from the replica; see :func:`.contents.rows_at`.

    Args:
        groups: the uid of each group, by its number.
    """
    return _at(RecordGroup, groups, keys, contents.rows_at)


def pages_at(segments: Mapping[int, bytes], keys: Sequence[Key]) -> dict[Key, bytes]:
    """Pages from the replica; see :func:`.contents.pages_at`.

    Args:
        segments: the uid of each segment, by its number.
    """
    return _at(IndexSegment, segments, keys, contents.pages_at)


def _at(
    kind: type[RecordGroup | IndexSegment],
    uids: Mapping[int, bytes],
    keys: Sequence[Key],
    read: Callable[[Sequence[Key]], dict[Key, T]],
) -> dict[Key, T]:
    if REPLICA not in settings.DATABASES:
        return read(keys)
    found = _of_replica(kind, uids, keys, read)
    left = [key for key in keys if key not in found]
    return found | read(left) if left else found


def _of_replica(
    kind: type[RecordGroup | IndexSegment],
    uids: Mapping[int, bytes],
    keys: Sequence[Key],
    read: Callable[[Sequence[Key]], dict[Key, T]],
) -> dict[Key, T]:
    """Rows or pages that the replica has."""
    if time.monotonic() < _Failed.until:
        return {}
    if _Failed.until:
        # One finds out for all whether it is back.
        _Failed.until = time.monotonic() + AGAIN_SECONDS
    try:
        with _on_replica():
            # Under this number it may know another one, if it went on from what a primary lost; and
            # what is staged may still be replaced.
            known = kind._default_manager.filter(pk__in=list(uids), staging=None)
            there = {
                number
                for number, uid in known.values_list("pk", "uid")
                if bytes(uid) == uids[number]
            }
            found = read([key for key in keys if key[0] in there])
    except (ObjectLost, ObjectAltered):
        return {}  # it may name an object that was written again since
    except Error as error:
        _Failed.until = time.monotonic() + AGAIN_SECONDS
        connections[REPLICA].close()
        _log.warning("the replica of the database fails (%s)", type(error).__name__)
        return {}
    _Failed.until = 0.0
    return found


@contextmanager
def _on_replica() -> Iterator[None]:
    """Have this thread's statements go to the replica."""
    primary = connections[DEFAULT_DB_ALIAS]
    connections[DEFAULT_DB_ALIAS] = connections[REPLICA]
    try:
        yield
    finally:
        connections[DEFAULT_DB_ALIAS] = primary
