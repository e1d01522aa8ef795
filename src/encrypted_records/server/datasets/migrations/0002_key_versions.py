"""Keyring versions along a schema's log."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("datasets", "0001_initial")]
    operations = [
        migrations.AddField("schema", "key_version", models.BigIntegerField(null=True)),
        migrations.AddField("schema", "first_key_version", models.BigIntegerField(null=True)),
        migrations.AddField("schema", "key_since", models.BigIntegerField(default=0)),
    ]
