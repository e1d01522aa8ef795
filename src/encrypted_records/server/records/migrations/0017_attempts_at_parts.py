"""Which attempt at a staged part is there."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("records", "0016_fewer_indexes")]

    operations = [
        migrations.AddField(
            model_name="stagedpart",
            name="attempt",
            field=models.BigIntegerField(default=0),
        ),
    ]
