"""Logs, rows, indexes, what is staged, what is erased, and what lies in objects."""

from django.conf import settings
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps

#: Columns of sealed bytes and of digests, which do not compress, or are read in pieces.
_SEALED = (
    ("record_row", "sealed"),
    ("index_page", "data"),
    ("row_part", "blocks"),
    ("page_part", "digests"),
)


def store_external(apps: StateApps, editor: BaseDatabaseSchemaEditor) -> None:
    """Tell PostgreSQL that these bytes do not compress, so that it does not try on every one."""
    if editor.connection.vendor == "postgresql":
        for table, column in _SEALED:
            editor.execute(f"ALTER TABLE {table} ALTER COLUMN {column} SET STORAGE EXTERNAL")


class Migration(migrations.Migration):
    initial = True

    replaces = [
        ("records", "0001_initial"),
        ("records", "0002_store_sealed_bytes_uncompressed"),
        ("records", "0003_key_id_of_a_group"),
        ("records", "0004_staging"),
        ("records", "0005_replaced_segments"),
        ("records", "0006_requests"),
        ("records", "0007_digests"),
        ("records", "0008_groups_that_end"),
        ("records", "0009_signatures"),
        ("records", "0010_bulk"),
        ("records", "0012_erasure"),
        ("records", "0014_checkpoints"),
        ("records", "0015_cache_files"),
        ("records", "0016_fewer_indexes"),
        ("records", "0017_attempts_at_parts"),
        ("records", "0018_dead_rows_of_empty_groups"),
        ("records", "0019_what_ended_groups_had"),
    ]

    dependencies = [
        ("datasets", "0001_tables"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="AskedErasure",
            fields=[
                (
                    "schema",
                    models.OneToOneField(
                        on_delete=models.CASCADE,
                        primary_key=True,
                        related_name="asked_erasure",
                        serialize=False,
                        to="datasets.schema",
                    ),
                ),
                ("up_to", models.BigIntegerField()),
                ("due", models.DateTimeField()),
                ("done", models.BigIntegerField(default=0)),
            ],
            options={
                "db_table": "asked_erasure",
            },
        ),
        migrations.CreateModel(
            name="CacheFile",
            fields=[
                ("id", models.CharField(max_length=32, primary_key=True, serialize=False)),
                ("begun", models.BigIntegerField(default=0)),
                ("ended", models.BigIntegerField(default=0)),
                ("seen", models.DateTimeField()),
            ],
            options={
                "db_table": "cache_file",
            },
        ),
        migrations.CreateModel(
            name="DeadRow",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "group_id",
                        "ordinal",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("group_id", models.BigIntegerField()),
                ("ordinal", models.BigIntegerField()),
                ("version", models.BigIntegerField()),
            ],
            options={
                "db_table": "dead_row",
            },
        ),
        migrations.CreateModel(
            name="ErasedRow",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "group_id",
                        "ordinal",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("group_id", models.BigIntegerField()),
                ("ordinal", models.BigIntegerField()),
                ("digest", models.BinaryField(max_length=32)),
            ],
            options={
                "db_table": "erased_row",
            },
        ),
        migrations.CreateModel(
            name="IndexPage",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "segment_id",
                        "number",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("segment_id", models.BigIntegerField()),
                ("number", models.BigIntegerField()),
                ("digest", models.BinaryField(max_length=32)),
                ("data", models.BinaryField()),
            ],
            options={
                "db_table": "index_page",
            },
        ),
        migrations.CreateModel(
            name="PagePart",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "segment_id",
                        "first",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("segment_id", models.BigIntegerField()),
                ("first", models.BigIntegerField()),
                ("count", models.BigIntegerField()),
                ("object_id", models.BigIntegerField(db_index=True)),
                ("page_bytes", models.BigIntegerField()),
                ("digests", models.BinaryField()),
            ],
            options={
                "db_table": "page_part",
            },
        ),
        migrations.CreateModel(
            name="RowRun",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "group_id",
                        "first",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("group_id", models.BigIntegerField()),
                ("first", models.BigIntegerField()),
                ("digests", models.BinaryField()),
            ],
            options={
                "db_table": "row_run",
            },
        ),
        migrations.CreateModel(
            name="BulkObject",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=32, unique=True)),
                ("state", models.CharField(max_length=8)),
                ("since", models.DateTimeField()),
                ("size", models.BigIntegerField()),
            ],
            options={
                "db_table": "bulk_object",
                "indexes": [
                    models.Index(
                        models.F("since"),
                        condition=models.Q(("state", "named"), _negated=True),
                        name="bulk_object_waiting",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="ChangedRow",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "group_id",
                        "ordinal",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("group_id", models.BigIntegerField()),
                ("ordinal", models.BigIntegerField()),
                ("record_id", models.BinaryField(max_length=16)),
                ("version", models.BigIntegerField()),
            ],
            options={
                "db_table": "changed_row",
                "indexes": [models.Index(models.F("record_id"), name="changed_row_id")],
            },
        ),
        migrations.CreateModel(
            name="CommitRequest",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "schema_id",
                        "request",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("request", models.BinaryField(max_length=16)),
                (
                    "schema",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=models.DO_NOTHING,
                        related_name="requests",
                        to="datasets.schema",
                    ),
                ),
            ],
            options={
                "db_table": "commit_request",
            },
        ),
        migrations.CreateModel(
            name="IndexSegment",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("uid", models.BinaryField(max_length=16)),
                ("form", models.CharField(max_length=8)),
                ("count", models.BigIntegerField()),
                ("pages", models.BigIntegerField()),
                ("header", models.BinaryField()),
                ("salt", models.BinaryField(max_length=32)),
                ("version", models.BigIntegerField(null=True)),
                ("replaced", models.BigIntegerField(null=True)),
                ("superseded_at", models.DateTimeField(null=True)),
                (
                    "schema",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=models.DO_NOTHING,
                        related_name="segments",
                        to="datasets.schema",
                    ),
                ),
            ],
            options={
                "db_table": "index_segment",
            },
        ),
        migrations.CreateModel(
            name="RecordRow",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "group_id",
                        "ordinal",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("group_id", models.BigIntegerField()),
                ("ordinal", models.BigIntegerField()),
                ("record_id", models.BinaryField(max_length=16)),
                ("version", models.BigIntegerField()),
                ("sealed", models.BinaryField()),
            ],
            options={
                "db_table": "record_row",
                "indexes": [
                    models.Index(models.F("record_id"), models.F("version"), name="record_row_id")
                ],
            },
        ),
        migrations.CreateModel(
            name="RowPart",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "group_id",
                        "first",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("group_id", models.BigIntegerField()),
                ("first", models.BigIntegerField()),
                ("count", models.BigIntegerField()),
                ("object_id", models.BigIntegerField(db_index=True)),
                ("blocks", models.BinaryField()),
                ("first_id", models.BinaryField(max_length=16, null=True)),
                ("last_id", models.BinaryField(max_length=16, null=True)),
            ],
            options={
                "db_table": "row_part",
                "indexes": [
                    models.Index(models.F("last_id"), models.F("first_id"), name="row_part_ids")
                ],
            },
        ),
        migrations.CreateModel(
            name="Staging",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("uid", models.BinaryField(max_length=16)),
                ("touched", models.DateTimeField()),
                (
                    "schema",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=models.DO_NOTHING,
                        related_name="stagings",
                        to="datasets.schema",
                    ),
                ),
                ("user", models.ForeignKey(on_delete=models.CASCADE, to=settings.AUTH_USER_MODEL)),
            ],
            options={
                "db_table": "staging",
            },
        ),
        migrations.CreateModel(
            name="StagedPart",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "staging_id",
                        "sequence",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("sequence", models.BigIntegerField()),
                ("attempt", models.BigIntegerField(default=0)),
                ("digest", models.BinaryField(max_length=32)),
                ("definition", models.BinaryField(max_length=32)),
                ("stands", models.BooleanField(default=False)),
                ("changes", models.BooleanField(default=False)),
                ("rows", models.TextField()),
                ("pages", models.TextField()),
                (
                    "staging",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=models.DO_NOTHING,
                        related_name="parts",
                        to="records.staging",
                    ),
                ),
            ],
            options={
                "db_table": "staged_part",
            },
        ),
        migrations.CreateModel(
            name="RecordGroup",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("uid", models.BinaryField(max_length=16)),
                ("version", models.BigIntegerField(null=True)),
                ("start", models.BigIntegerField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
                ("ended", models.BigIntegerField(null=True)),
                ("erase_at", models.DateTimeField(null=True)),
                ("erased", models.BigIntegerField(default=0)),
                ("key_version", models.BigIntegerField()),
                ("key_id", models.BinaryField(max_length=8)),
                ("count", models.BigIntegerField()),
                ("holes", models.TextField(default="[]")),
                ("live", models.BigIntegerField()),
                ("fields", models.TextField()),
                ("salt", models.BinaryField(max_length=32)),
                (
                    "schema",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=models.DO_NOTHING,
                        related_name="groups",
                        to="datasets.schema",
                    ),
                ),
                (
                    "segment",
                    models.ForeignKey(
                        null=True,
                        on_delete=models.DO_NOTHING,
                        related_name="groups",
                        to="records.indexsegment",
                    ),
                ),
                (
                    "staging",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=models.DO_NOTHING,
                        related_name="groups",
                        to="records.staging",
                    ),
                ),
            ],
            options={
                "db_table": "record_group",
            },
        ),
        migrations.AddField(
            model_name="indexsegment",
            name="staging",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=models.DO_NOTHING,
                related_name="segments",
                to="records.staging",
            ),
        ),
        migrations.CreateModel(
            name="WriterHead",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "schema_id",
                        "writer",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("writer", models.BinaryField(max_length=16)),
                ("counter", models.BigIntegerField()),
                ("digest", models.BinaryField(max_length=32)),
                (
                    "schema",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=models.DO_NOTHING,
                        related_name="writers",
                        to="datasets.schema",
                    ),
                ),
            ],
            options={
                "db_table": "writer_head",
            },
        ),
        migrations.CreateModel(
            name="CommitLog",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "schema_id",
                        "version",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("version", models.BigIntegerField()),
                ("commit_id", models.BinaryField(max_length=16)),
                ("digest", models.BinaryField(max_length=32)),
                ("log_digest", models.BinaryField(max_length=32)),
                ("body", models.BinaryField()),
                ("mac", models.BinaryField(max_length=32)),
                ("signature", models.BinaryField(default=b"", max_length=64)),
                ("created", models.DateTimeField(auto_now_add=True)),
                (
                    "schema",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=models.DO_NOTHING,
                        related_name="log",
                        to="datasets.schema",
                    ),
                ),
            ],
            options={
                "db_table": "commit_log",
                "constraints": [
                    models.UniqueConstraint(
                        models.F("schema"), models.F("commit_id"), name="commit_log_id"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Hold",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("uid", models.UUIDField()),
                ("version", models.BigIntegerField()),
                ("reason", models.CharField(max_length=16)),
                ("begun", models.DateTimeField()),
                ("renewed", models.DateTimeField()),
                (
                    "schema",
                    models.ForeignKey(
                        on_delete=models.CASCADE, related_name="holds", to="datasets.schema"
                    ),
                ),
                ("user", models.ForeignKey(on_delete=models.CASCADE, to=settings.AUTH_USER_MODEL)),
            ],
            options={
                "db_table": "hold",
                "constraints": [
                    models.UniqueConstraint(models.F("schema"), models.F("uid"), name="hold_uid")
                ],
            },
        ),
        migrations.CreateModel(
            name="LogCheckpoint",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("version", models.BigIntegerField()),
                ("key_version", models.BigIntegerField()),
                ("member", models.BinaryField(max_length=16)),
                ("digest", models.BinaryField(max_length=32)),
                ("size", models.BigIntegerField()),
                ("body", models.BinaryField()),
                ("mac", models.BinaryField(max_length=32)),
                ("signature", models.BinaryField(default=b"", max_length=64)),
                ("created", models.DateTimeField(auto_now_add=True)),
                (
                    "schema",
                    models.ForeignKey(
                        on_delete=models.DO_NOTHING,
                        related_name="checkpoints",
                        to="datasets.schema",
                    ),
                ),
            ],
            options={
                "db_table": "log_checkpoint",
                "constraints": [
                    models.UniqueConstraint(
                        models.F("schema"), models.F("digest"), name="log_checkpoint_digest"
                    )
                ],
            },
        ),
        migrations.AddConstraint(
            model_name="staging",
            constraint=models.UniqueConstraint(
                models.F("schema"), models.F("uid"), name="staging_uid"
            ),
        ),
        migrations.AddIndex(
            model_name="recordgroup",
            index=models.Index(
                models.F("ended_at"),
                condition=models.Q(("count__gt", 0), ("ended_at__isnull", False)),
                name="record_group_ended",
            ),
        ),
        migrations.AddIndex(
            model_name="recordgroup",
            index=models.Index(
                models.F("erase_at"),
                condition=models.Q(("erase_at__isnull", False)),
                name="record_group_erase_at",
            ),
        ),
        migrations.AddIndex(
            model_name="recordgroup",
            index=models.Index(
                models.F("staging"),
                condition=models.Q(("staging__isnull", False)),
                name="record_group_staging",
            ),
        ),
        migrations.AddConstraint(
            model_name="recordgroup",
            constraint=models.UniqueConstraint(
                models.F("schema"), models.F("uid"), name="record_group_uid"
            ),
        ),
        migrations.AddIndex(
            model_name="indexsegment",
            index=models.Index(
                models.F("superseded_at"),
                condition=models.Q(("pages__gt", 0), ("superseded_at__isnull", False)),
                name="index_segment_replaced",
            ),
        ),
        migrations.AddIndex(
            model_name="indexsegment",
            index=models.Index(
                models.F("schema"),
                models.F("version"),
                condition=models.Q(("pages__gt", 0)),
                name="index_segment_header",
            ),
        ),
        migrations.AddIndex(
            model_name="indexsegment",
            index=models.Index(
                models.F("staging"),
                condition=models.Q(("staging__isnull", False)),
                name="index_segment_staging",
            ),
        ),
        migrations.AddConstraint(
            model_name="indexsegment",
            constraint=models.UniqueConstraint(
                models.F("schema"), models.F("uid"), name="index_segment_uid"
            ),
        ),
        migrations.RunPython(store_external, migrations.RunPython.noop, elidable=False),
    ]
