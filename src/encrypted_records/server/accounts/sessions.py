"""Browser sessions, stored under the SHA-256 of the cookie: Django's engine with that change.

In memory and in the cookie, a session has its key, which is a secret. The table has a digest
instead, so that cookies cannot be read from the database.

The secret of the session's login is derived from the cookie by another function: neither can be
derived from the other, nor from the content of a table.
"""

from __future__ import annotations

import base64
import hmac
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib.sessions.backends import db
from django.contrib.sessions.backends.base import SessionBase, UpdateError
from django.contrib.sessions.base_session import AbstractBaseSession
from django.utils import timezone

from encrypted_records.server.accounts.digests import digest

_OF_A_LOGIN = b"encrypted_records.sessions.login"


def login_secret(session: SessionBase) -> str:
    """The secret of the login that hangs on this session; nothing while it has no cookie."""
    key = session.session_key
    if key is None:
        return ""
    derived = hmac.digest(key.encode(), _OF_A_LOGIN, "sha256")
    return base64.urlsafe_b64encode(derived).rstrip(b"=").decode()


def key_of(key: str) -> str:
    """A session's key as its table stores it: in base 85, since the column has room for 40
    characters.
    """
    return base64.b85encode(digest(key)).decode()


class SessionStore(db.SessionStore):
    """All that names a session to the database is here, also for callers with ``await``."""

    def load(self) -> dict[str, Any]:
        key = self.session_key
        session = self.model.objects.filter(
            session_key=key_of(key or ""), expire_date__gt=timezone.now()
        ).first()
        if session is None:
            self._session_key = None
            return {}
        return self.decode(session.session_data)

    def exists(self, session_key: str) -> bool:
        return super().exists(key_of(session_key))

    def create_model_instance(self, data: dict[str, Any]) -> AbstractBaseSession:
        row = super().create_model_instance(data)
        row.session_key = key_of(row.session_key)
        return row

    def save(self, must_create: bool = False) -> None:
        try:
            super().save(must_create)
        except UpdateError as error:
            # The engine says so of every failure. Ended is only a session without a row; a
            # database that fails, which has a cause, is another matter.
            failure = error.__context__
            if failure is not None and failure.__cause__ is not None:
                raise failure from failure.__cause__
            raise

    def delete(self, session_key: str | None = None) -> None:
        key = session_key or self.session_key
        if key is not None:
            super().delete(key_of(key))

    async def aload(self) -> dict[str, Any]:
        return await sync_to_async(self.load)()

    async def aexists(self, session_key: str) -> bool:
        return await sync_to_async(self.exists)(session_key)

    async def acreate_model_instance(self, data: dict[str, Any]) -> AbstractBaseSession:
        return await sync_to_async(self.create_model_instance)(data)

    async def adelete(self, session_key: str | None = None) -> None:
        await sync_to_async(self.delete)(session_key)
