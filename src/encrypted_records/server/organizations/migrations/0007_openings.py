"""Names that entries of a roster state beside what is signed. Entries from before it have none, and
are of a format that every reader refuses by name."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("organizations", "0006_fewer_indexes")]

    operations = [
        migrations.AddField(
            model_name="entry",
            name="openings",
            field=models.BinaryField(default=b"\x90"),
            preserve_default=False,
        ),
    ]
