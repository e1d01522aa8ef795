"""The requests that commits have stored."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("datasets", "0003_canonical_definition"),
        ("records", "0005_replaced_segments"),
    ]
    operations = [
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
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="requests",
                        to="datasets.schema",
                    ),
                ),
            ],
            options={"db_table": "commit_request"},
        ),
    ]
