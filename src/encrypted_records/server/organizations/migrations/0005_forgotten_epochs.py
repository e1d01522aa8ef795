"""The oldest epoch of a dataset's keys that is not forgotten."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("organizations", "0004_use_of_services")]

    operations = [migrations.AddField("datasetkey", "first", models.IntegerField(default=1))]
