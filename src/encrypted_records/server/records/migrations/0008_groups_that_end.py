"""Groups have a place in the order of the log, and may end; their rows' ids may be there twice."""

from django.db import migrations, models

_BEFORE = """
UPDATE record_group SET start = (
    SELECT COALESCE(SUM(before.count), 0) FROM record_group before
    WHERE before.schema_id = record_group.schema_id AND before.staging_id IS NULL AND (
        before.version < record_group.version
        OR (before.version = record_group.version AND before.id < record_group.id)))
WHERE staging_id IS NULL
"""
_ALL = """
UPDATE datasets_schema SET stored_rows = (
    SELECT COALESCE(SUM(record_group.count), 0) FROM record_group
    WHERE record_group.schema_id = datasets_schema.id AND record_group.staging_id IS NULL)
"""


class Migration(migrations.Migration):
    dependencies = [("datasets", "0004_stored_rows"), ("records", "0007_digests")]

    operations = [
        migrations.AddField(
            model_name="recordgroup", name="start", field=models.BigIntegerField(null=True)
        ),
        migrations.AddField(
            model_name="recordgroup", name="ended_at", field=models.DateTimeField(null=True)
        ),
        migrations.AddField(
            model_name="recordgroup", name="holes", field=models.TextField(default="[]")
        ),
        migrations.AddField(
            model_name="stagedpart", name="stands", field=models.BooleanField(default=False)
        ),
        migrations.AddField(
            model_name="stagedpart", name="changes", field=models.BooleanField(default=False)
        ),
        migrations.RunSQL(_BEFORE, migrations.RunSQL.noop),
        migrations.RunSQL(_ALL, migrations.RunSQL.noop),
        migrations.RemoveConstraint(model_name="recordrow", name="record_row_version"),
        migrations.AddIndex(
            model_name="recordrow",
            index=models.Index("record_id", "version", name="record_row_id"),
        ),
        migrations.AddIndex(
            model_name="recordgroup",
            index=models.Index(
                "ended_at",
                condition=models.Q(("count__gt", 0), ("ended_at__isnull", False)),
                name="record_group_ended",
            ),
        ),
    ]
