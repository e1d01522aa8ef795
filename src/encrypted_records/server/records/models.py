"""Tables of what the API stores without being able to read it.

Everything bulky is immutable and addressed by (group, ordinal) or (segment, number). Rows, pages
and dead rows name their group or segment by its number here, without a foreign key: a check per
row would double the cost of storing it, and only :mod:`.store` writes them, in the transaction
that writes the group or segment.

The bulky tables carry no index on anything random, since such an index makes storing four to
five times slower. Record ids are time-ordered, so the index on them grows at its end.
"""

from __future__ import annotations

from django.db import models

from encrypted_records.server.accounts.models import User
from encrypted_records.server.datasets.models import Schema


class Staging(models.Model):
    """What one job or merge has stored of a schema ahead of its commit. Nobody else sees it."""

    schema = models.ForeignKey(Schema, on_delete=models.DO_NOTHING, related_name="stagings")
    uid = models.BinaryField(max_length=16)
    user = models.ForeignKey(User, on_delete=models.CASCADE)
    touched = models.DateTimeField()

    class Meta:
        db_table = "staging"
        constraints = [models.UniqueConstraint("schema", "uid", name="staging_uid")]


class StagedPart(models.Model):
    """One part of a staging, and where its rows and pages lie, so that another can replace it."""

    pk = models.CompositePrimaryKey("staging_id", "sequence")
    staging = models.ForeignKey(
        Staging, on_delete=models.DO_NOTHING, related_name="parts", db_index=False
    )
    sequence = models.BigIntegerField()
    digest = models.BinaryField(max_length=32)
    #: of the definition that its shapes were checked against
    definition = models.BinaryField(max_length=32)
    #: (group's number, first ordinal, count) of each batch, as JSON
    rows = models.TextField()
    #: (segment's number, page's number) of each page, as JSON
    pages = models.TextField()

    class Meta:
        db_table = "staged_part"


class IndexSegment(models.Model):
    """An index segment. It lives until a commit supersedes it, and its pages a little longer.

    The row stays, with no pages, so that no later segment takes its uid. One with a staging is not
    visible yet.
    """

    schema = models.ForeignKey(Schema, on_delete=models.DO_NOTHING, related_name="segments")
    uid = models.BinaryField(max_length=16)
    form = models.CharField(max_length=8)
    count = models.BigIntegerField()
    pages = models.BigIntegerField()
    superseded_at = models.DateTimeField(null=True)
    staging = models.ForeignKey(
        Staging, on_delete=models.DO_NOTHING, related_name="segments", null=True
    )

    class Meta:
        db_table = "index_segment"
        constraints = [models.UniqueConstraint("schema", "uid", name="index_segment_uid")]


class RecordGroup(models.Model):
    """A batch of rows stored by one commit; not visible while it has a staging."""

    schema = models.ForeignKey(Schema, on_delete=models.DO_NOTHING, related_name="groups")
    uid = models.BinaryField(max_length=16)
    #: the live segment that indexes it; none while it is staged
    segment = models.ForeignKey(
        IndexSegment, on_delete=models.DO_NOTHING, related_name="groups", null=True
    )
    #: of the log, whose commit made it visible; none while it is staged
    version = models.BigIntegerField(null=True)
    staging = models.ForeignKey(
        Staging, on_delete=models.DO_NOTHING, related_name="groups", null=True
    )
    key_version = models.BigIntegerField()
    key_id = models.BinaryField(max_length=8)
    count = models.BigIntegerField()
    #: count without the dead, so that listings need not count rows
    live = models.BigIntegerField()
    #: names of the sealed fields in their order, as a JSON array
    fields = models.TextField()

    class Meta:
        db_table = "record_group"
        constraints = [models.UniqueConstraint("schema", "uid", name="record_group_uid")]


class RecordRow(models.Model):
    """One sealed record. ``sealed`` is the MessagePack array of its fields' ciphertexts."""

    pk = models.CompositePrimaryKey("group_id", "ordinal")
    group_id = models.BigIntegerField()
    ordinal = models.BigIntegerField()
    record_id = models.BinaryField(max_length=16)
    version = models.BigIntegerField()
    sealed = models.BinaryField()

    class Meta:
        db_table = "record_row"
        constraints = [models.UniqueConstraint("record_id", "version", name="record_row_version")]


class DeadRow(models.Model):
    """A row that the commit of ``version`` ended."""

    pk = models.CompositePrimaryKey("group_id", "ordinal")
    group_id = models.BigIntegerField()
    ordinal = models.BigIntegerField()
    version = models.BigIntegerField()

    class Meta:
        db_table = "dead_row"


class IndexPage(models.Model):
    """One sealed page of a segment."""

    pk = models.CompositePrimaryKey("segment_id", "number")
    segment_id = models.BigIntegerField()
    number = models.BigIntegerField()
    data = models.BinaryField()

    class Meta:
        db_table = "index_page"


class CommitLog(models.Model):
    """The commit that took a schema to ``version``, as its writer signed it."""

    pk = models.CompositePrimaryKey("schema_id", "version")
    schema = models.ForeignKey(
        Schema, on_delete=models.DO_NOTHING, related_name="log", db_index=False
    )
    version = models.BigIntegerField()
    commit_id = models.BinaryField(max_length=16)
    digest = models.BinaryField(max_length=32)
    #: of the log up to here: what a reader who has seen this version must have computed
    log_digest = models.BinaryField(max_length=32)
    body = models.BinaryField()
    mac = models.BinaryField(max_length=32)
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "commit_log"
        constraints = [models.UniqueConstraint("schema", "commit_id", name="commit_log_id")]


class WriterHead(models.Model):
    """The newest commit of one writer: the end of the chain its next one continues."""

    pk = models.CompositePrimaryKey("schema_id", "writer")
    schema = models.ForeignKey(
        Schema, on_delete=models.DO_NOTHING, related_name="writers", db_index=False
    )
    writer = models.BinaryField(max_length=16)
    counter = models.BigIntegerField()
    digest = models.BinaryField(max_length=32)

    class Meta:
        db_table = "writer_head"
