"""The time that has certainly come, kept over restarts of the API."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("records", "0001_tables")]

    operations = [
        migrations.CreateModel(
            name="ClockMark",
            fields=[
                ("id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("certain", models.FloatField()),
                ("seen", models.FloatField()),
                ("ran", models.FloatField(default=0.0)),
            ],
            options={"db_table": "clock_mark"},
        ),
    ]
