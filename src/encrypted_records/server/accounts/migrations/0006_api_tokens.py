"""API tokens, and which of them began a job."""

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

import encrypted_records.server.db.fields


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0005_what_a_copy_does_not_hold"),
        ("datasets", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="ApiToken",
            fields=[
                (
                    "id",
                    encrypted_records.server.db.fields.ShortIdField(
                        default=encrypted_records.server.db.fields.new_id,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("name", models.CharField(max_length=100)),
                ("digest", models.BinaryField(max_length=32, unique=True)),
                ("writes", models.BooleanField()),
                ("limited", models.BooleanField()),
                (
                    "created",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False),
                ),
                ("expires", models.DateTimeField()),
                ("last_used", models.DateField(null=True)),
                ("datasets", models.ManyToManyField(related_name="+", to="datasets.dataset")),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="api_tokens",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={"db_table": "api_token"},
        ),
        migrations.AddField(
            model_name="jobgrant",
            name="api_token",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                to="accounts.apitoken",
            ),
        ),
    ]
