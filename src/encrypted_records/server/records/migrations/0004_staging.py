"""Rows and pages can be staged of their commit; what is there already is visible."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("datasets", "0001_initial"),
        ("records", "0003_key_id_of_a_group"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name="recordgroup",
            name="version",
            field=models.BigIntegerField(null=True),
        ),
        migrations.RunSQL("UPDATE record_group SET version = 0", migrations.RunSQL.noop),
        migrations.AlterField(
            model_name="recordgroup",
            name="segment",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="groups",
                to="records.indexsegment",
            ),
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
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="stagings",
                        to="datasets.schema",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to=settings.AUTH_USER_MODEL
                    ),
                ),
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
                ("digest", models.BinaryField(max_length=32)),
                ("definition", models.BinaryField(max_length=32)),
                ("rows", models.TextField()),
                ("pages", models.TextField()),
                (
                    "staging",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="parts",
                        to="records.staging",
                    ),
                ),
            ],
            options={
                "db_table": "staged_part",
            },
        ),
        migrations.AddField(
            model_name="indexsegment",
            name="staging",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="segments",
                to="records.staging",
            ),
        ),
        migrations.AddField(
            model_name="recordgroup",
            name="staging",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="groups",
                to="records.staging",
            ),
        ),
        migrations.AddConstraint(
            model_name="staging",
            constraint=models.UniqueConstraint(
                models.F("schema"), models.F("uid"), name="staging_uid"
            ),
        ),
    ]
