"""What APIs keep of objects on their disks, and how far they have dropped what is deleted."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("records", "0014_checkpoints")]

    operations = [
        migrations.CreateModel(
            name="CacheFile",
            fields=[
                ("id", models.CharField(max_length=32, primary_key=True, serialize=False)),
                ("begun", models.BigIntegerField(default=0)),
                ("ended", models.BigIntegerField(default=0)),
                ("seen", models.DateTimeField()),
            ],
            options={"db_table": "cache_file"},
        ),
    ]
