"""How many rows a schema has, with the dead ones: where the next one lies in the order of its log."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("datasets", "0003_canonical_definition")]

    operations = [
        migrations.AddField(
            model_name="schema", name="stored_rows", field=models.BigIntegerField(default=0)
        )
    ]
