"""What the log holds of a schema: its definition, and when records were last added."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("datasets", "0002_key_versions")]
    operations = [
        migrations.AddField(
            "schema", "canonical", models.TextField(default=""), preserve_default=False
        ),
        migrations.AddField("schema", "added_at", models.BigIntegerField(default=0)),
    ]
