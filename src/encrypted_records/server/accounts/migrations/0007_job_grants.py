"""What was revoked of a job's token is told from what a restored database does not know."""

from __future__ import annotations

import hmac
from typing import Any

import django.db.models.deletion
from django.db import migrations, models
from django.utils.crypto import salted_hmac

from encrypted_records.server.accounts.digests import digest

#: How Django names the HMAC that a seal is.
_SALT = "django.contrib.auth.models.AbstractBaseUser.get_session_auth_hash"


def note_passwords(apps: Any, _: object) -> None:
    """Jobs under way go on; a grant whose password has changed stays revoked."""
    for grant in apps.get_model("accounts", "JobGrant").objects.select_related("user").iterator():
        password = grant.user.password
        now = salted_hmac(_SALT, password, algorithm="sha256").hexdigest()
        if hmac.compare_digest(grant.seal, now):
            grant.password_digest = digest(password)
        grant.is_limited = grant.api_token_id is not None
        grant.save(update_fields=["password_digest", "is_limited"])


class Migration(migrations.Migration):
    dependencies = [("accounts", "0006_api_tokens")]

    operations = [
        migrations.AddField(
            model_name="jobgrant",
            name="password_digest",
            field=models.BinaryField(default=b"", max_length=32),
        ),
        migrations.AddField(
            model_name="jobgrant",
            name="is_limited",
            field=models.BooleanField(default=False),
        ),
        migrations.AlterField(
            model_name="jobgrant",
            name="api_token",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                to="accounts.apitoken",
            ),
        ),
        migrations.RunPython(note_passwords, migrations.RunPython.noop, elidable=True),
    ]
