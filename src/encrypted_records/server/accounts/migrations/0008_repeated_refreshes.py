"""When a login's refresh token was used last, and which one."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0007_job_grants")]

    operations = [
        migrations.AddField(
            model_name="login",
            name="refresh_before",
            field=models.BinaryField(default=b"", max_length=32),
        ),
        migrations.AddField(
            model_name="login",
            name="refreshed",
            field=models.DateTimeField(null=True),
        ),
    ]
