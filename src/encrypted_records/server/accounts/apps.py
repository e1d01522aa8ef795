"""Start-up of the accounts app."""

from __future__ import annotations

from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "encrypted_records.server.accounts"

    def ready(self) -> None:
        from encrypted_records.server.http import openapi  # noqa: F401, PLC0415 - registers by import
