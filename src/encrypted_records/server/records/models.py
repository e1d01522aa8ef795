"""Tables of the data that the API stores and cannot read.

Everything bulky is immutable and addressed by (group, ordinal) or (segment, number). Rows, pages
and dead rows name their group or segment by its number here, without a foreign key: a check per row
would double the cost of storing it, and only :mod:`.store` writes them, in the transaction that
writes the group or segment.

The bulky tables have no index on random values, because such an index makes storing four to five
times slower. Record ids are time-ordered, so the index on them grows at its end.

No table that commits add to has an index that is a prefix of another index. It would slow down each
commit; and PostgreSQL may choose the wrong index in a plan made while the table was empty.
"""

from django.db import models

from encrypted_records.server.accounts.models import User
from encrypted_records.server.datasets.models import Schema


class Staging(models.Model):
    """Groups and segments that a job or merge has stored before its commit. They are visible only
    to their user.
    """

    schema = models.ForeignKey(
        Schema, on_delete=models.DO_NOTHING, related_name="stagings", db_index=False
    )
    uid = models.BinaryField(max_length=16)
    user = models.ForeignKey(User, on_delete=models.CASCADE)
    touched = models.DateTimeField()

    class Meta:
        db_table = "staging"
        constraints = [models.UniqueConstraint("schema", "uid", name="staging_uid")]


class StagedPart(models.Model):
    """A part of a staging, and the location of its rows and pages, so that another part can replace
    it.
    """

    pk = models.CompositePrimaryKey("staging_id", "sequence")
    staging = models.ForeignKey(Staging, models.DO_NOTHING, related_name="parts", db_index=False)
    sequence = models.BigIntegerField()
    #: increases each time the sender makes the part again
    attempt = models.BigIntegerField(default=0)
    digest = models.BinaryField(max_length=32)
    #: digest of the definition that the part's shapes were checked against
    definition = models.BinaryField(max_length=32)
    #: whether its groups replace others, which the commit ends
    stands = models.BooleanField(default=False)
    #: whether it has rows of a version above 1
    changes = models.BooleanField(default=False)
    #: (group's number, first ordinal, count) of each batch, as JSON
    rows = models.TextField()
    #: (segment's number, page's number) of each page, as JSON
    pages = models.TextField()

    class Meta:
        db_table = "staged_part"


class IndexSegment(models.Model):
    """An index segment. It lives until a commit supersedes it, and its pages a little longer.

    The row stays, without pages, so that no later segment takes its uid. A segment with a staging
    is not visible yet.
    """

    schema = models.ForeignKey(
        Schema, on_delete=models.DO_NOTHING, related_name="segments", db_index=False
    )
    uid = models.BinaryField(max_length=16)
    form = models.CharField(max_length=8)
    count = models.BigIntegerField()
    pages = models.BigIntegerField()
    #: its sealed header and the salt of its digest; empty once its last page is gone
    header = models.BinaryField()
    salt = models.BinaryField(max_length=32)
    #: versions of the log: of the commit that made it visible, and of the commit that replaced it
    version = models.BigIntegerField(null=True)
    replaced = models.BigIntegerField(null=True)
    superseded_at = models.DateTimeField(null=True)
    staging = models.ForeignKey(
        Staging, on_delete=models.DO_NOTHING, related_name="segments", null=True, db_index=False
    )

    class Meta:
        db_table = "index_segment"
        constraints = [models.UniqueConstraint("schema", "uid", name="index_segment_uid")]
        # Only the few replaced segments that still have pages.
        indexes = [
            models.Index(
                "superseded_at",
                name="index_segment_replaced",
                condition=models.Q(pages__gt=0, superseded_at__isnull=False),
            ),
            # Only segments whose headers are sent to readers of the log.
            models.Index(
                "schema",
                "version",
                name="index_segment_header",
                condition=models.Q(pages__gt=0),
            ),
            models.Index(
                "staging",
                name="index_segment_staging",
                condition=models.Q(staging__isnull=False),
            ),
        ]


class RecordGroup(models.Model):
    """A batch of rows stored by one commit; not visible while it has a staging.

    The row of an ended group stays, a little later without record rows, so that no later group
    takes its uid.
    """

    schema = models.ForeignKey(
        Schema, on_delete=models.DO_NOTHING, related_name="groups", db_index=False
    )
    uid = models.BinaryField(max_length=16)
    #: the live segment that indexes it; null while it is staged
    segment = models.ForeignKey(
        IndexSegment, on_delete=models.DO_NOTHING, related_name="groups", null=True
    )
    #: version of the log whose commit made it visible; null while it is staged
    version = models.BigIntegerField(null=True)
    #: rows of the schema before its first row, in log order; null while it is staged
    start = models.BigIntegerField(null=True)
    #: when a commit ended it because other groups replace it, and that commit's version of the log
    ended_at = models.DateTimeField(null=True)
    ended = models.BigIntegerField(null=True)
    #: when to look next for dead rows to erase; null if no dead row has bytes
    erase_at = models.DateTimeField(null=True)
    #: the number of its dead rows whose bytes are erased
    erased = models.BigIntegerField(default=0)
    staging = models.ForeignKey(
        Staging, on_delete=models.DO_NOTHING, related_name="groups", null=True, db_index=False
    )
    key_version = models.BigIntegerField()
    key_id = models.BinaryField(max_length=8)
    count = models.BigIntegerField()
    #: ordinals without a row, as (first, count) runs in JSON
    holes = models.TextField(default="[]")
    #: count without dead rows and holes, so that listings need not count rows
    live = models.BigIntegerField()
    #: ids and least classes of the sealed fields in order, as JSON
    fields = models.TextField()
    #: salt of the digest of its rows
    salt = models.BinaryField(max_length=32)

    class Meta:
        db_table = "record_group"
        constraints = [models.UniqueConstraint("schema", "uid", name="record_group_uid")]
        # Only the few ended groups that still have rows.
        indexes = [
            models.Index(
                "ended_at",
                name="record_group_ended",
                condition=models.Q(count__gt=0, ended_at__isnull=False),
            ),
            models.Index(
                "erase_at",
                name="record_group_erase_at",
                condition=models.Q(erase_at__isnull=False),
            ),
            models.Index(
                "staging",
                name="record_group_staging",
                condition=models.Q(staging__isnull=False),
            ),
        ]


class RecordRow(models.Model):
    """A sealed record. ``sealed`` is the MessagePack array of its fields' ciphertexts."""

    pk = models.CompositePrimaryKey("group_id", "ordinal")
    group_id = models.BigIntegerField()
    ordinal = models.BigIntegerField()
    record_id = models.BinaryField(max_length=16)
    version = models.BigIntegerField()
    sealed = models.BinaryField()

    class Meta:
        db_table = "record_row"
        # Not unique: a row that replaces another has the same id and version
        # (:mod:`..rows.contents`).
        indexes = [models.Index("record_id", "version", name="record_row_id")]


class RowRun(models.Model):
    """Concatenated digests of runs of 64 rows, for rows that were sent together."""

    pk = models.CompositePrimaryKey("group_id", "first")
    group_id = models.BigIntegerField()
    first = models.BigIntegerField()
    digests = models.BinaryField()

    class Meta:
        db_table = "row_run"


class DeadRow(models.Model):
    """A row that the commit of ``version`` ended. A completely erased group has no dead rows: all
    of its rows are dead.
    """

    pk = models.CompositePrimaryKey("group_id", "ordinal")
    group_id = models.BigIntegerField()
    ordinal = models.BigIntegerField()
    version = models.BigIntegerField()

    class Meta:
        db_table = "dead_row"


class ErasedRow(models.Model):
    """A dead row whose bytes are erased: its salted digest, kept as long as it proves its
    neighbours.
    """

    pk = models.CompositePrimaryKey("group_id", "ordinal")
    group_id = models.BigIntegerField()
    ordinal = models.BigIntegerField()
    digest = models.BinaryField(max_length=32)

    class Meta:
        db_table = "erased_row"


class AskedErasure(models.Model):
    """A request for immediate erasure of everything in a schema that ended up to a version of its
    log (:mod:`..erasure.erasing`).
    """

    schema = models.OneToOneField(
        Schema, on_delete=models.CASCADE, primary_key=True, related_name="asked_erasure"
    )
    up_to = models.BigIntegerField()
    #: when it may begin, and the version up to which it is done, in SQLite's files too
    due = models.DateTimeField()
    done = models.BigIntegerField(default=0)

    class Meta:
        db_table = "asked_erasure"


class Hold(models.Model):
    """A hold on one version of a schema's log: the data that this version needs is kept while the
    hold lasts.
    """

    schema = models.ForeignKey(Schema, on_delete=models.CASCADE, related_name="holds")
    uid = models.UUIDField()
    user = models.ForeignKey(User, on_delete=models.CASCADE)
    version = models.BigIntegerField()
    #: the purpose, one of a few words
    reason = models.CharField(max_length=16)
    begun = models.DateTimeField()
    renewed = models.DateTimeField()

    class Meta:
        db_table = "hold"
        constraints = [models.UniqueConstraint("schema", "uid", name="hold_uid")]


class IndexPage(models.Model):
    """A sealed page of a segment."""

    pk = models.CompositePrimaryKey("segment_id", "number")
    segment_id = models.BigIntegerField()
    number = models.BigIntegerField()
    digest = models.BinaryField(max_length=32)
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
    #: digest of the log up to here; every reader who has seen this version must have computed it
    log_digest = models.BinaryField(max_length=32)
    body = models.BinaryField()
    mac = models.BinaryField(max_length=32)
    #: the member's; empty if the organization has no roster
    signature = models.BinaryField(max_length=64, default=b"")
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "commit_log"
        constraints = [models.UniqueConstraint("schema", "commit_id", name="commit_log_id")]


class LogCheckpoint(models.Model):
    """The state of a schema's log at a version, summarized by a member who may write to the
    schema.
    """

    schema = models.ForeignKey(Schema, on_delete=models.DO_NOTHING, related_name="checkpoints")
    version = models.BigIntegerField()
    key_version = models.BigIntegerField()
    #: the member who signed it; zero bytes if the organization has no roster
    member = models.BinaryField(max_length=16)
    digest = models.BinaryField(max_length=32)
    size = models.BigIntegerField()
    body = models.BinaryField()
    mac = models.BinaryField(max_length=32)
    signature = models.BinaryField(max_length=64, default=b"")
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "log_checkpoint"
        constraints = [models.UniqueConstraint("schema", "digest", name="log_checkpoint_digest")]


class CommitRequest(models.Model):
    """A client's request that a commit has stored, so that no other commit stores it again."""

    pk = models.CompositePrimaryKey("schema_id", "request")
    schema = models.ForeignKey(
        Schema, on_delete=models.DO_NOTHING, related_name="requests", db_index=False
    )
    request = models.BinaryField(max_length=16)

    class Meta:
        db_table = "commit_request"


class WriterHead(models.Model):
    """A writer's newest commit, which the writer's next commit continues."""

    pk = models.CompositePrimaryKey("schema_id", "writer")
    schema = models.ForeignKey(
        Schema, on_delete=models.DO_NOTHING, related_name="writers", db_index=False
    )
    writer = models.BinaryField(max_length=16)
    counter = models.BigIntegerField()
    digest = models.BinaryField(max_length=32)

    class Meta:
        db_table = "writer_head"


class ClockMark(models.Model):
    """The time that has certainly come, in seconds since 1970 (:func:`.store.certain_now`)."""

    id = models.BigIntegerField(primary_key=True)
    #: the latest moment that had certainly come, and what the clock said then
    certain = models.FloatField()
    seen = models.FloatField()
    #: how long APIs have run since the clock was last set ahead
    ran = models.FloatField(default=0.0)

    class Meta:
        db_table = "clock_mark"


# The content of the bulk store: objects, and the rows and pages in them.


class CacheFile(models.Model):
    """A file on an API's disk that caches objects (:mod:`..objects.cache_files`)."""

    id = models.CharField(max_length=32, primary_key=True)
    begun = models.BigIntegerField(default=0)
    ended = models.BigIntegerField(default=0)
    seen = models.DateTimeField()

    class Meta:
        db_table = "cache_file"


class BulkObject(models.Model):
    """An object of the bulk store. Its row exists from before the first byte is written until after
    the last is deleted (:mod:`..objects.objects`).
    """

    name = models.CharField(max_length=32, unique=True)
    state = models.CharField(max_length=8)
    #: when it entered this state
    since = models.DateTimeField()
    size = models.BigIntegerField()

    class Meta:
        db_table = "bulk_object"
        # Only the few objects that wait for something, not the many that are in use.
        indexes = [
            models.Index("since", name="bulk_object_waiting", condition=~models.Q(state="named"))
        ]


class RowPart(models.Model):
    """Consecutive rows of a group that are in an object, not in ``record_row``."""

    pk = models.CompositePrimaryKey("group_id", "first")
    group_id = models.BigIntegerField()
    first = models.BigIntegerField()
    count = models.BigIntegerField()
    object_id = models.BigIntegerField(db_index=True)
    #: an entry for each block (:mod:`..objects.layout`)
    blocks = models.BinaryField()
    #: the first and last id of its new records; null if it has no new record
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
    """Consecutive pages of a segment that are in an object, not in ``index_page``."""

    pk = models.CompositePrimaryKey("segment_id", "first")
    segment_id = models.BigIntegerField()
    first = models.BigIntegerField()
    count = models.BigIntegerField()
    object_id = models.BigIntegerField(db_index=True)
    #: the length of each page
    page_bytes = models.BigIntegerField()
    #: the digests of all pages, concatenated
    digests = models.BinaryField()

    class Meta:
        db_table = "page_part"
