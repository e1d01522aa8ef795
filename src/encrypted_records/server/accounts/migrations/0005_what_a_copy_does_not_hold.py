"""Logins, sessions and links of which the database has digests alone; those of before end."""

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

import encrypted_records.server.db.fields


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0004_job_grant"),
        ("sessions", "0001_initial"),
    ]

    operations = [
        # Stored under their cookies, which would stay readable here until they expire.
        migrations.RunSQL("DELETE FROM django_session", migrations.RunSQL.noop),
        # Made again, since its rows have no secret and could not be given one.
        migrations.DeleteModel("Login"),
        migrations.CreateModel(
            name="Login",
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
                (
                    "created",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False),
                ),
                ("expires", models.DateTimeField()),
                ("digest", models.BinaryField(max_length=32)),
                ("refresh", models.BinaryField(default=b"", max_length=32)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="logins",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Link",
            fields=[
                ("digest", models.BinaryField(max_length=32, primary_key=True, serialize=False)),
                ("expires", models.DateTimeField(db_index=True)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="links",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
        ),
    ]
