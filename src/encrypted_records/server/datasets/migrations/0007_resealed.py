"""When everything that a schema has was sealed again."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("datasets", "0006_log_definitions")]
    operations = [
        migrations.AddField("schema", "resealed_at", models.BigIntegerField(default=0)),
    ]
