"""Users, their logins, the links of messages, and what limits count.

``replaces`` names the migrations that made the same tables before, so that a database that has gone
through all of them is taken as it is, in every app.
"""

from django.conf import settings
from django.db import migrations, models
from django.db.models.functions import Lower
from django.utils import timezone

from encrypted_records.server.db.fields import ShortIdField, new_id


class Migration(migrations.Migration):
    initial = True

    replaces = [
        ("accounts", "0001_initial"),
        ("accounts", "0002_logins"),
        ("accounts", "0003_tallies"),
        ("accounts", "0005_what_a_copy_does_not_hold"),
        ("accounts", "0008_repeated_refreshes"),
    ]

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="User",
            fields=[
                ("password", models.CharField(max_length=128, verbose_name="password")),
                (
                    "last_login",
                    models.DateTimeField(blank=True, null=True, verbose_name="last login"),
                ),
                (
                    "id",
                    ShortIdField(default=new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("email", models.EmailField(max_length=254)),
                ("first_name", models.CharField(blank=True, default="", max_length=150)),
                ("last_name", models.CharField(blank=True, default="", max_length=150)),
                ("verified", models.DateTimeField(editable=False, null=True)),
                ("is_active", models.BooleanField(default=False)),
                ("date_joined", models.DateTimeField(default=timezone.now, editable=False)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        Lower("email"),
                        condition=models.Q(("verified__isnull", False)),
                        name="verified_email_unique_in_any_case",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Login",
            fields=[
                (
                    "id",
                    ShortIdField(default=new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("created", models.DateTimeField(default=timezone.now, editable=False)),
                ("expires", models.DateTimeField()),
                ("digest", models.BinaryField(max_length=32)),
                ("refresh", models.BinaryField(default=b"", max_length=32)),
                ("refresh_before", models.BinaryField(default=b"", max_length=32)),
                ("refreshed", models.DateTimeField(null=True)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=models.CASCADE, related_name="logins", to=settings.AUTH_USER_MODEL
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
                        on_delete=models.CASCADE, related_name="links", to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Tally",
            fields=[
                ("name", models.BinaryField(max_length=32, primary_key=True, serialize=False)),
                ("count", models.IntegerField(default=0)),
                ("until", models.DateTimeField(null=True)),
                ("forgotten", models.DateTimeField(db_index=True)),
            ],
        ),
    ]
