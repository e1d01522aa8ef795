"""A group that ended, and has no row any more, keeps no description of its rows."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("records", "0018_dead_rows_of_empty_groups")]

    operations = [
        migrations.RunSQL(
            [
                (
                    "UPDATE record_group SET fields = '[]', holes = '[]', key_id = %s"
                    " WHERE ended_at IS NOT NULL AND count = 0",
                    [b""],
                )
            ]
        )
    ]
