"""Tell PostgreSQL that sealed bytes do not compress, so that it does not try on every one."""

from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps


def store_external(apps: StateApps, editor: BaseDatabaseSchemaEditor) -> None:
    if editor.connection.vendor == "postgresql":
        editor.execute("ALTER TABLE record_row ALTER COLUMN sealed SET STORAGE EXTERNAL")
        editor.execute("ALTER TABLE index_page ALTER COLUMN data SET STORAGE EXTERNAL")


class Migration(migrations.Migration):
    dependencies = [("records", "0001_initial")]
    operations = [migrations.RunPython(store_external, migrations.RunPython.noop, elidable=False)]
