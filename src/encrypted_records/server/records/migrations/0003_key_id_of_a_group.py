"""Which key seals a group; a schema's groups may be of several versions of a keyring."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("records", "0002_store_sealed_bytes_uncompressed")]
    operations = [
        # Groups from before were made by commits of a format that no version reads any more.
        migrations.AddField(
            "recordgroup",
            "key_id",
            models.BinaryField(max_length=8, default=bytes(8)),
            preserve_default=False,
        ),
    ]
