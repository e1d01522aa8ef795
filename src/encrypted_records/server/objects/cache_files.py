"""APIs that keep copies of objects on their disks, and how far each has dropped what is deleted.

Looks are numbered, so that no clock decides: the number that a look has when it begins is drawn
here, and noted when all that the database did not know at that time is gone from the file.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta

from django.db.models import F, QuerySet
from django.db.models.functions import Now

from encrypted_records.server.objects.objects import known_among
from encrypted_records.server.records.models import CacheFile

#: Nobody waits any more for a file of which nothing was heard for so long: its process was killed,
#: so that the file is gone; or has dropped what is in it, by its own clock, a minute after its last
#: look began (:meth:`.block_cache.BlockCache.lapse`); or is paused, and does so before anything
#: else when it goes on.
LAPSE = timedelta(minutes=2)


def begin(cache: str) -> int:
    """The number of a look that begins."""
    row, _ = CacheFile.objects.get_or_create(id=cache, defaults={"seen": Now()})
    CacheFile.objects.filter(pk=row.pk).update(begun=F("begun") + 1, seen=Now())
    CacheFile.objects.filter(seen__lt=Now() - LAPSE).delete()
    return CacheFile.objects.get(pk=row.pk).begun


def end(cache: str, number: int) -> bool:
    """A look has ended: what was gone when it began, is not in the file. Whether the file still
    counts."""
    return bool(CacheFile.objects.filter(pk=cache).update(ended=number, seen=Now()))


def leave(cache: str) -> None:
    """This file is gone."""
    CacheFile.objects.filter(pk=cache).delete()


def known(names: Collection[str]) -> Collection[str]:
    """The names among these of objects that the database knows."""
    return known_among(names)


def begun() -> dict[str, int]:
    """The number of the look that began last in each file that counts, by its id."""
    return dict(_counting().values_list("id", "begun"))


def looked_since(before: Mapping[str, int]) -> bool:
    """Whether each of these files that still counts had a look, from its begin to its end, since
    :func:`begun` said this."""
    files = _counting().filter(pk__in=list(before))
    # Numbers begin again where a file was not heard of for so long that it had left the table.
    return all(
        file.ended > before[file.id] or (file.begun < before[file.id] and file.ended)
        for file in files
    )


def _counting() -> QuerySet[CacheFile]:
    return CacheFile.objects.filter(seen__gte=Now() - LAPSE)
