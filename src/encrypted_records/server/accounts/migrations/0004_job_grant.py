"""Tokens with which jobs go on."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0003_tallies"),
    ]

    operations = [
        migrations.CreateModel(
            name="JobGrant",
            fields=[
                ("digest", models.BinaryField(max_length=32, primary_key=True, serialize=False)),
                ("job", models.BinaryField(max_length=16)),
                ("seal", models.CharField(max_length=128)),
                ("expires", models.DateTimeField()),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={
                "db_table": "job_grant",
                "constraints": [
                    models.UniqueConstraint(models.F("user"), models.F("job"), name="job_grant_job")
                ],
            },
        ),
    ]
