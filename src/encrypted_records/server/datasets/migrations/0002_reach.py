"""The view of rights. SQLite changes a table by making another: a later migration that changes one
of this view's tables drops the view before, and makes it again."""

from django.db import migrations, models

from encrypted_records.server import sql
from encrypted_records.server.db.fields import OptionalIdField, ShortIdField

_AWAY = "DROP VIEW IF EXISTS reach"


class Migration(migrations.Migration):
    dependencies = [("datasets", "0001_tables"), ("organizations", "0001_tables")]

    operations = [
        migrations.RunSQL(_AWAY, migrations.RunSQL.noop),
        migrations.RunSQL(sql.REACH, _AWAY),
        migrations.CreateModel(
            name="Reach",
            fields=[
                ("member", ShortIdField(primary_key=True, serialize=False)),
                ("dataset", ShortIdField()),
                ("schema", OptionalIdField(null=True)),
                ("writes", models.BooleanField()),
            ],
            options={"db_table": "reach", "managed": False},
        ),
    ]
