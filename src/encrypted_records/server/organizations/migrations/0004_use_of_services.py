"""When a service was last used."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("organizations", "0003_roster")]

    operations = [migrations.AddField("service", "last_used", models.DateTimeField(null=True))]
