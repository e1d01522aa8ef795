"""Tables of the content of the bulk store: objects, and the rows and pages in them.

As in :mod:`.models`, groups and segments are named by their numbers, without foreign keys.
"""

from __future__ import annotations

from django.db import models


class CacheFile(models.Model):
    """A file in which an API keeps objects on its disk (:mod:`..objects.cache_files`)."""

    id = models.CharField(max_length=32, primary_key=True)
    begun = models.BigIntegerField(default=0)
    ended = models.BigIntegerField(default=0)
    seen = models.DateTimeField()

    class Meta:
        db_table = "cache_file"


class BulkObject(models.Model):
    """An object of the bulk store, from before its first byte to after its last
    (:mod:`..objects.objects`)."""

    name = models.CharField(max_length=32, unique=True)
    state = models.CharField(max_length=8)
    #: when it came into this state
    since = models.DateTimeField()
    size = models.BigIntegerField()

    class Meta:
        db_table = "bulk_object"
        # Those few that wait for something, of the many that are named.
        indexes = [
            models.Index("since", name="bulk_object_waiting", condition=~models.Q(state="named"))
        ]


class RowPart(models.Model):
    """Consecutive rows of a group that are in an object, and not in ``record_row``."""

    pk = models.CompositePrimaryKey("group_id", "first")
    group_id = models.BigIntegerField()
    first = models.BigIntegerField()
    count = models.BigIntegerField()
    object_id = models.BigIntegerField(db_index=True)
    #: an entry for each block (:mod:`..objects.layout`)
    blocks = models.BinaryField()
    #: the span of the ids of its new records; none where it has none
    first_id = models.BinaryField(max_length=16, null=True)
    last_id = models.BinaryField(max_length=16, null=True)

    class Meta:
        db_table = "row_part"
        indexes = [models.Index("last_id", "first_id", name="row_part_ids")]


class ChangedRow(models.Model):
    """A row of a version above 1 in an object: its id is older than its group."""

    pk = models.CompositePrimaryKey("group_id", "ordinal")
    group_id = models.BigIntegerField()
    ordinal = models.BigIntegerField()
    record_id = models.BinaryField(max_length=16)
    version = models.BigIntegerField()

    class Meta:
        db_table = "changed_row"
        indexes = [models.Index("record_id", name="changed_row_id")]


class PagePart(models.Model):
    """Consecutive pages of a segment that are in an object, and not in ``index_page``."""

    pk = models.CompositePrimaryKey("segment_id", "first")
    segment_id = models.BigIntegerField()
    first = models.BigIntegerField()
    count = models.BigIntegerField()
    object_id = models.BigIntegerField(db_index=True)
    #: the length of each of them
    page_bytes = models.BigIntegerField()
    #: of each page, one after the other
    digests = models.BinaryField()

    class Meta:
        db_table = "page_part"
