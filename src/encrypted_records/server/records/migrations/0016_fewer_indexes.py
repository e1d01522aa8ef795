"""What finds a segment or a group of a schema finds all of them, too; few of them are staged."""

import django.db.models.deletion
from django.db import migrations, models

_DROPPED = (
    "index_segment_schema_id_733ec5f0",
    "index_segment_staging_id_c3dd8c59",
    "record_group_schema_id_b19773b7",
    "record_group_staging_id_64f65cd6",
    "staging_schema_id_d9c1a4e8",
)


class Migration(migrations.Migration):
    dependencies = [("datasets", "0008_fewer_indexes"), ("records", "0015_cache_files")]

    operations = [
        # Django would write the table again on SQLite, and check each row on PostgreSQL.
        migrations.SeparateDatabaseAndState(
            [migrations.RunSQL(f"DROP INDEX IF EXISTS {one}") for one in _DROPPED],
            [
                migrations.AlterField(
                    model_name="indexsegment",
                    name="schema",
                    field=models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="segments",
                        to="datasets.schema",
                    ),
                ),
                migrations.AlterField(
                    model_name="indexsegment",
                    name="staging",
                    field=models.ForeignKey(
                        null=True,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="segments",
                        to="records.staging",
                    ),
                ),
                migrations.AlterField(
                    model_name="recordgroup",
                    name="schema",
                    field=models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="groups",
                        to="datasets.schema",
                    ),
                ),
                migrations.AlterField(
                    model_name="recordgroup",
                    name="staging",
                    field=models.ForeignKey(
                        null=True,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="groups",
                        to="records.staging",
                    ),
                ),
                migrations.AlterField(
                    model_name="staging",
                    name="schema",
                    field=models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="stagings",
                        to="datasets.schema",
                    ),
                ),
            ],
        ),
        migrations.AddIndex(
            model_name="indexsegment",
            index=models.Index(
                models.F("staging"),
                condition=models.Q(("staging__isnull", False)),
                name="index_segment_staging",
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
    ]
