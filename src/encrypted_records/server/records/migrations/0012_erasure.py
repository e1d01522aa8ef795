"""Dead rows whose bytes go, and holds that make them stay."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

#: All that died before is to be looked at.
_DUE = """
UPDATE record_group SET erase_at = CURRENT_TIMESTAMP
WHERE ended_at IS NULL AND staging_id IS NULL
    AND EXISTS (SELECT 1 FROM dead_row d WHERE d.group_id = record_group.id)
"""


class Migration(migrations.Migration):
    dependencies = [
        ("datasets", "0006_log_definitions"),
        ("records", "0010_bulk"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="AskedErasure",
            fields=[
                (
                    "schema",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
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
            options={"db_table": "asked_erasure"},
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
            options={"db_table": "erased_row"},
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
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="holds",
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
            options={"db_table": "hold"},
        ),
        migrations.AddConstraint(
            model_name="hold",
            constraint=models.UniqueConstraint("schema", "uid", name="hold_uid"),
        ),
        migrations.AddField(
            model_name="recordgroup", name="ended", field=models.BigIntegerField(null=True)
        ),
        migrations.AddField(
            model_name="recordgroup", name="erase_at", field=models.DateTimeField(null=True)
        ),
        migrations.AddField(
            model_name="recordgroup", name="erased", field=models.BigIntegerField(default=0)
        ),
        migrations.AddIndex(
            model_name="recordgroup",
            index=models.Index(
                "erase_at",
                condition=models.Q(("erase_at__isnull", False)),
                name="record_group_erase_at",
            ),
        ),
        migrations.RunSQL(_DUE, migrations.RunSQL.noop),
    ]
