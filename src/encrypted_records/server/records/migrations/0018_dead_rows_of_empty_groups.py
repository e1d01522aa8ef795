"""A group of which no byte is left says itself that all of its rows are dead."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("records", "0017_attempts_at_parts")]

    operations = [
        migrations.RunSQL(
            "DELETE FROM dead_row WHERE group_id IN (SELECT id FROM record_group"
            " WHERE live = 0 AND erased = count AND count > 0 AND ended_at IS NULL"
            " AND staging_id IS NULL)"
        )
    ]
