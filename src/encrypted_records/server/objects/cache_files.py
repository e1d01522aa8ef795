"""APIs that cache objects on their disks, and how far each has dropped deleted objects.

Looks are numbered, so that no clock decides: the number of a look is assigned here when it begins.
It is noted once the file has no object that the database did not know at that time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta

from django.db.models import F, QuerySet
from django.db.models.functions import Now

from encrypted_records.server.objects.objects import known_among
from encrypted_records.server.records.models import CacheFile

#: A file that was not heard of for this long does not count any more. Its process was killed, so
#: that the file is gone; or it has dropped the content, by its own clock, a minute after its last
#: look began (:meth:`.block_cache.BlockCache.lapse`); or it is paused, and drops the content before
#: anything else when it resumes.
LAPSE = timedelta(minutes=2)


def begin(cache: str) -> int:
    """Begin a look; returns its number."""
    row, _ = CacheFile.objects.get_or_create(id=cache, defaults={"seen": Now()})
    CacheFile.objects.filter(pk=row.pk).update(begun=F("begun") + 1, seen=Now())
    CacheFile.objects.filter(seen__lt=Now() - LAPSE).delete()
    return CacheFile.objects.get(pk=row.pk).begun


def end(cache: str, number: int) -> bool:
    """End a look: objects that were gone when it began are not in the file. Returns whether the
    file still counts.
    """
    return bool(CacheFile.objects.filter(pk=cache).update(ended=number, seen=Now()))


def leave(cache: str) -> None:
    """Unregister a file that is gone."""
    CacheFile.objects.filter(pk=cache).delete()


def known(names: Collection[str]) -> Collection[str]:
    """The names of objects among these that the database knows."""
    return known_among(names)


def begun() -> dict[str, int]:
    """The number of the latest look of each file that counts, by its id."""
    return dict(_counting().values_list("id", "begun"))


def looked_since(before: Mapping[str, int]) -> bool:
    """Whether each of these files that still counts has begun and ended a look since :func:`begun`
    returned ``before``.
    """
    files = _counting().filter(pk__in=list(before))
    # Numbers restart if a file was not heard of for so long that it was removed from the table.
    return all(
        file.ended > before[file.id] or (file.begun < before[file.id] and file.ended)
        for file in files
    )


def _counting() -> QuerySet[CacheFile]:
    return CacheFile.objects.filter(seen__gte=Now() - LAPSE)
