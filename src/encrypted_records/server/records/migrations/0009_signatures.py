"""Commits are signed by their members."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("records", "0008_groups_that_end")]

    operations = [
        migrations.AddField(
            model_name="commitlog",
            name="signature",
            field=models.BinaryField(default=b"", max_length=64),
        ),
    ]
