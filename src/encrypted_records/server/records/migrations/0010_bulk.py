"""Parts that lie in objects of the bulk store."""

from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps


def store_external(apps: StateApps, editor: BaseDatabaseSchemaEditor) -> None:
    """As in 0002: what is read in pieces is not compressed."""
    if editor.connection.vendor == "postgresql":
        editor.execute("ALTER TABLE row_part ALTER COLUMN blocks SET STORAGE EXTERNAL")
        editor.execute("ALTER TABLE page_part ALTER COLUMN digests SET STORAGE EXTERNAL")


class Migration(migrations.Migration):
    dependencies = [
        ("records", "0009_signatures"),
    ]

    operations = [
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
        migrations.RunPython(store_external, migrations.RunPython.noop, elidable=False),
    ]
