"""What logs add up to at some version, by those who verified them."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("datasets", "0006_log_definitions"),
        ("records", "0012_erasure"),
    ]

    operations = [
        migrations.CreateModel(
            name="LogCheckpoint",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("version", models.BigIntegerField()),
                ("key_version", models.BigIntegerField()),
                ("member", models.BinaryField(max_length=16)),
                ("digest", models.BinaryField(max_length=32)),
                ("size", models.BigIntegerField()),
                ("body", models.BinaryField()),
                ("mac", models.BinaryField(max_length=32)),
                ("signature", models.BinaryField(default=b"", max_length=64)),
                ("created", models.DateTimeField(auto_now_add=True)),
                (
                    "schema",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="checkpoints",
                        to="datasets.schema",
                    ),
                ),
            ],
            options={"db_table": "log_checkpoint"},
        ),
        migrations.AddConstraint(
            model_name="logcheckpoint",
            constraint=models.UniqueConstraint("schema", "digest", name="log_checkpoint_digest"),
        ),
    ]
