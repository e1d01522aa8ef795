"""Operations on the API's database for its operator; the API may be running."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from encrypted_records.cli import data_folder
from encrypted_records.cli.settings import LOCAL, Settings, variable
from encrypted_records.cli.supervise.extras import check_installed
from encrypted_records.cli.terminal import say

if TYPE_CHECKING:
    from encrypted_records.server.serve import ApiSettings


def make_owner(settings: Settings, email: str, organization: str) -> None:
    """Make an account an owner of an organization, in the API's database."""
    check_installed("api")
    from encrypted_records.server import serve  # noqa: PLC0415 - only this needs Django

    serve.make_owner(_of_api(settings), email, organization)


def verify_stored(settings: Settings) -> bool:
    """Walk all that an API has stored, and say what is not as it was stored; whether all is."""
    check_installed("api")
    from encrypted_records.server import operate  # noqa: PLC0415 - only this needs Django

    return operate.verify(_of_api(settings), say)


def examine_stored(settings: Settings, little_space: int) -> list[tuple[str, str, str, str]]:
    """Look at the database and the bulk store of an API: what was looked at, how it is, what was
    found, what to do."""
    check_installed("api")
    from encrypted_records.server import operate  # noqa: PLC0415 - only this needs Django

    return operate.examine(_of_api(settings), little_space)


def move_stored(settings: Settings) -> bool:
    """Move all stored data of an API to the configured bulk store; returns whether all of it could
    be moved.
    """
    check_installed("api")
    from encrypted_records.server import operate  # noqa: PLC0415 - only this needs Django

    return operate.move(_of_api(settings), say)


def reconcile_stored(settings: Settings) -> bool:
    """Reconcile the database and the bulk store of an API after one of them was restored; returns
    whether nothing is lost.
    """
    check_installed("api")
    from encrypted_records.server import operate  # noqa: PLC0415 - only this needs Django

    return operate.reconcile(_of_api(settings), say)


def _of_api(settings: Settings) -> ApiSettings:
    from encrypted_records.server.serve import ApiSettings  # noqa: PLC0415 - as above

    # Django's settings read these from the environment alone.
    for name in ("replica_url", "bulk_url", "bulk_before"):
        os.environ[variable(name)] = str(getattr(settings, name) or "")
    folder = settings.data_dir
    if settings.database_url is not None and not (folder.exists() and any(folder.iterdir())):
        # A key is made there, and an API may be started in it afterwards.
        data_folder.prepare(folder, ("api",))
    return ApiSettings(
        data_dir=settings.data_dir,
        host=LOCAL,
        port=0,
        database_url=settings.database_url,
        email_url=None,
        public_url="",
    )
