"""Links that prove another address for an account."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0003_second_factor")]

    operations = [
        migrations.AddField(
            "link", "new_address", models.EmailField(max_length=254, default="", editable=False)
        ),
    ]
