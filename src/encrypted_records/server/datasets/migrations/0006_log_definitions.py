from __future__ import annotations

from typing import Any

import django.db.models.deletion
from django.db import migrations, models


def enter_present(apps: Any, _: object) -> None:
    """The definition of each log; what it brought before is under none that is used any more."""
    schemas = apps.get_model("datasets", "Schema").objects.filter(version__gt=0)
    table = apps.get_model("datasets", "LogDefinition")
    for schema in schemas.iterator():
        table.objects.create(
            schema=schema,
            digest=schema.definition_digest,
            canonical=schema.canonical,
            version=schema.version,
        )


class Migration(migrations.Migration):
    dependencies = [("datasets", "0005_creators")]

    operations = [
        migrations.CreateModel(
            name="LogDefinition",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("digest", models.BinaryField(max_length=32)),
                ("canonical", models.TextField()),
                ("version", models.BigIntegerField()),
                ("usable", models.BooleanField(default=True)),
                (
                    "schema",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="definitions",
                        to="datasets.schema",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint("schema", "digest", name="definition_in_schema")
                ],
            },
        ),
        migrations.RunPython(enter_present, migrations.RunPython.noop, elidable=True),
    ]
