"""Start-up of the accounts app."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.db.models.signals import pre_save


def _forget_text(instance: Any, **_: Any) -> None:
    instance.token = ""


class AccountsConfig(AppConfig):
    name = "encrypted_records.server.accounts"

    def ready(self) -> None:
        # The library stores every refresh token whole, for its admin pages. Only the token's id
        # is needed to revoke it, and whoever reads the database should not find it usable.
        from rest_framework_simplejwt.token_blacklist.models import (  # noqa: PLC0415 - apps first
            OutstandingToken,
        )

        from encrypted_records.server import openapi  # noqa: F401, PLC0415 - registers by import

        pre_save.connect(_forget_text, sender=OutstandingToken)
