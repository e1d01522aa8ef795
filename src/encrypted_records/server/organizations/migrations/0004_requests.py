"""Requests of members for access to datasets."""

import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("datasets", "0001_tables"),
        ("organizations", "0003_removals"),
    ]

    operations = [
        migrations.CreateModel(
            name="StoredRequest",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("body", models.BinaryField()),
                ("signature", models.BinaryField(max_length=64)),
                (
                    "created",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False),
                ),
                ("declined", models.DateTimeField(null=True)),
                (
                    "dataset",
                    models.ForeignKey(
                        on_delete=models.CASCADE, related_name="requests", to="datasets.dataset"
                    ),
                ),
                (
                    "membership",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=models.CASCADE,
                        related_name="requests",
                        to="organizations.membership",
                    ),
                ),
            ],
            options={
                "db_table": "access_request",
                "constraints": [
                    models.UniqueConstraint(
                        models.F("membership"), models.F("dataset"), name="request_once"
                    )
                ],
            },
        ),
    ]
