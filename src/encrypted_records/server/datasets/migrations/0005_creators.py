"""Who made a dataset or a schema, and so may delete it."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


def _creator() -> "models.ForeignKey[object, object]":
    return models.ForeignKey(
        editable=False,
        null=True,
        on_delete=django.db.models.deletion.SET_NULL,
        related_name="+",
        to=settings.AUTH_USER_MODEL,
    )


class Migration(migrations.Migration):
    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ("datasets", "0004_stored_rows"),
    ]
    operations = [
        migrations.AddField("dataset", "creator", _creator()),
        migrations.AddField("schema", "creator", _creator()),
    ]
