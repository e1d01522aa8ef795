"""Databases of before entries were judged by those before them: they have more columns."""

from typing import Any

from django.db import migrations

#: Columns by table; the tables are there still.
_GONE = {
    "roster_standing": ("is_service", "name", "anchor", "expires"),
    "roster_dataset": ("commitment", "since"),
    "roster_seat": ("actor", "ended"),
}


def _drop(_: Any, editor: Any) -> None:
    connection = editor.connection
    for table, columns in _GONE.items():
        with connection.cursor() as cursor:
            there = connection.introspection.get_table_description(cursor, table)
        names = {column.name for column in there}
        for column in columns:
            if column in names:
                editor.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    editor.execute("DROP TABLE IF EXISTS roster_used_key")


class Migration(migrations.Migration):
    dependencies = [("organizations", "0001_tables")]

    operations = [migrations.RunPython(_drop, migrations.RunPython.noop)]
