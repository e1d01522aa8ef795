"""A second factor of logins."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0002_tokens")]

    operations = [
        migrations.AddField(
            "user", "has_second_factor", models.BooleanField(default=False, editable=False)
        ),
        migrations.CreateModel(
            name="SecondFactor",
            fields=[
                (
                    "user",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="second_factor",
                        serialize=False,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("seed", models.BinaryField(max_length=20)),
                ("step", models.BigIntegerField(default=0)),
            ],
            options={"db_table": "second_factor"},
        ),
        migrations.CreateModel(
            name="RecoveryCode",
            fields=[
                ("digest", models.BinaryField(max_length=32, primary_key=True, serialize=False)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="recovery_codes",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={"db_table": "recovery_code"},
        ),
    ]
