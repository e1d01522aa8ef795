"""Accounts that their holders have deleted."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0004_changes_of_address")]

    operations = [
        migrations.AddField("user", "deleted", models.DateTimeField(null=True, editable=False)),
    ]
