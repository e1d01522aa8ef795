"""Tokens of programs and of jobs: a file of its own, since they name datasets, which name users."""

from django.conf import settings
from django.db import migrations, models
from django.utils import timezone

from encrypted_records.server.db.fields import ShortIdField, new_id


class Migration(migrations.Migration):
    replaces = [
        ("accounts", "0004_job_grant"),
        ("accounts", "0006_api_tokens"),
        ("accounts", "0007_job_grants"),
    ]

    dependencies = [("accounts", "0001_tables"), ("datasets", "0001_tables")]

    operations = [
        migrations.CreateModel(
            name="ApiToken",
            fields=[
                (
                    "id",
                    ShortIdField(default=new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("name", models.CharField(max_length=100)),
                ("digest", models.BinaryField(max_length=32, unique=True)),
                ("writes", models.BooleanField()),
                ("limited", models.BooleanField()),
                ("created", models.DateTimeField(default=timezone.now, editable=False)),
                ("expires", models.DateTimeField()),
                ("last_used", models.DateField(null=True)),
                ("datasets", models.ManyToManyField(related_name="+", to="datasets.dataset")),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=models.CASCADE,
                        related_name="api_tokens",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={"db_table": "api_token"},
        ),
        migrations.CreateModel(
            name="JobGrant",
            fields=[
                ("digest", models.BinaryField(max_length=32, primary_key=True, serialize=False)),
                ("job", models.BinaryField(max_length=16)),
                ("seal", models.CharField(max_length=128)),
                ("password_digest", models.BinaryField(default=b"", max_length=32)),
                ("expires", models.DateTimeField()),
                ("is_limited", models.BooleanField(default=False)),
                (
                    "api_token",
                    models.ForeignKey(null=True, on_delete=models.SET_NULL, to="accounts.apitoken"),
                ),
                ("user", models.ForeignKey(on_delete=models.CASCADE, to=settings.AUTH_USER_MODEL)),
            ],
            options={
                "db_table": "job_grant",
                "constraints": [
                    models.UniqueConstraint(models.F("user"), models.F("job"), name="job_grant_job")
                ],
            },
        ),
    ]
