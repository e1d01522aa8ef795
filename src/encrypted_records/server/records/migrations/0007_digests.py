"""Salts, headers and digests of what is stored.

Pages of the format before it cannot be read any more: their table is made again, with the digest
before the page, so that digests are read without the pages.
"""

from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps


def store_external(apps: StateApps, editor: BaseDatabaseSchemaEditor) -> None:
    """As in 0002, of the new table."""
    if editor.connection.vendor == "postgresql":
        editor.execute("ALTER TABLE index_page ALTER COLUMN data SET STORAGE EXTERNAL")


def _key(*columns: str) -> models.CompositePrimaryKey:
    return models.CompositePrimaryKey(
        *columns, blank=True, editable=False, primary_key=True, serialize=False
    )


class Migration(migrations.Migration):
    dependencies = [("records", "0006_requests")]
    operations = [
        migrations.DeleteModel(name="IndexPage"),
        migrations.CreateModel(
            name="IndexPage",
            fields=[
                ("pk", _key("segment_id", "number")),
                ("segment_id", models.BigIntegerField()),
                ("number", models.BigIntegerField()),
                ("digest", models.BinaryField(max_length=32)),
                ("data", models.BinaryField()),
            ],
            options={"db_table": "index_page"},
        ),
        migrations.RunPython(store_external, migrations.RunPython.noop, elidable=False),
        migrations.CreateModel(
            name="RowRun",
            fields=[
                ("pk", _key("group_id", "first")),
                ("group_id", models.BigIntegerField()),
                ("first", models.BigIntegerField()),
                ("digests", models.BinaryField()),
            ],
            options={"db_table": "row_run"},
        ),
        migrations.AddField(
            model_name="recordgroup",
            name="salt",
            field=models.BinaryField(default=b"", max_length=32),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name="indexsegment",
            name="header",
            field=models.BinaryField(default=b""),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name="indexsegment",
            name="salt",
            field=models.BinaryField(default=b"", max_length=32),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name="indexsegment",
            name="version",
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="indexsegment",
            name="replaced",
            field=models.BigIntegerField(null=True),
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
    ]
