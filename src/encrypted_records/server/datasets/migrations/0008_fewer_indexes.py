"""The index of slugs finds a dataset's schemas, too."""

import django.db.models.deletion
from django.db import migrations, models

_DROPPED = ("datasets_schema_dataset_id_4a475e03",)


class Migration(migrations.Migration):
    dependencies = [("datasets", "0007_resealed")]

    operations = [
        # Django would write the table again on SQLite, and check each row on PostgreSQL.
        migrations.SeparateDatabaseAndState(
            [migrations.RunSQL(f"DROP INDEX IF EXISTS {one}") for one in _DROPPED],
            [
                migrations.AlterField(
                    model_name="schema",
                    name="dataset",
                    field=models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="schemas",
                        to="datasets.dataset",
                    ),
                ),
            ],
        ),
    ]
