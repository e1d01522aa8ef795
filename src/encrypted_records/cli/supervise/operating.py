"""Operations for the operator of an API, on its database, even while it runs; and on mirrors, which
:mod:`encrypted_records.mirror` copies, serves and verifies.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from encrypted_records.cli import data_folder
from encrypted_records.cli.settings import Settings, variable
from encrypted_records.cli.state_file import is_loopback
from encrypted_records.cli.supervise.startup import check_installed, check_port
from encrypted_records.cli.terminal import say
from encrypted_records.errors import InvalidSetting

if TYPE_CHECKING:
    from encrypted_records.mirror.copier import CopyTotals
    from encrypted_records.mirror.verifying import MirrorProof
    from encrypted_records.server.operate import CheckResult
    from encrypted_records.server.serve import ApiSettings


def make_owner(settings: Settings, email: str, organization: str) -> None:
    """Make an account an owner of an organization, in the API's database."""
    check_installed("api")
    from encrypted_records.server import serve  # noqa: PLC0415 - only this needs Django

    serve.make_owner(_of_api(settings), email, organization)


def verify_stored(settings: Settings) -> bool:
    """Verify everything that an API has stored, and report differences; returns whether all is
    intact.
    """
    check_installed("api")
    from encrypted_records.server import operate  # noqa: PLC0415 - only this needs Django

    return operate.verify(_of_api(settings), say)


def examine_stored(settings: Settings, little_space: int) -> list[CheckResult]:
    """Check the database and the bulk store of an API."""
    check_installed("api")
    from encrypted_records.server import operate  # noqa: PLC0415 - only this needs Django

    return operate.examine(_of_api(settings), little_space)


def move_stored(settings: Settings) -> bool:
    """Move all stored data of an API to the configured bulk store; returns whether all of it could
    be moved.
    """
    check_installed("api")
    from encrypted_records.server import operate  # noqa: PLC0415 - only this needs Django

    with _alone(settings) as api:
        return operate.move(api, say)


def reconcile_stored(settings: Settings) -> bool:
    """Reconcile the database and the bulk store of an API after one of them was restored; returns
    whether nothing is lost.
    """
    check_installed("api")
    from encrypted_records.server import operate  # noqa: PLC0415 - only this needs Django

    with _alone(settings) as api:
        return operate.reconcile(api, say)


@contextmanager
def _alone(settings: Settings) -> Iterator[ApiSettings]:
    """No other ``ers storage`` runs meanwhile: each would take what the other moves for lost."""
    api = _of_api(settings)
    there = settings.data_dir.is_dir()  # otherwise there is no database either
    with data_folder.hold(settings.data_dir, "storage", wait=False) if there else nullcontext():
        yield api


def _of_api(settings: Settings) -> ApiSettings:
    from encrypted_records.server.serve import ApiSettings  # noqa: PLC0415 - as above

    # Django's settings module reads these only from the environment.
    for name in ("replica_url", "bulk_url", "bulk_before"):
        os.environ[variable(name)] = str(getattr(settings, name) or "")
    folder = settings.data_dir
    if settings.database_url is not None and not (folder.exists() and any(folder.iterdir())):
        # A key is created there, and an API may be started in the folder afterwards.
        data_folder.prepare(folder, ("api",))
    elif folder.exists():
        data_folder.require_own(folder)
    return ApiSettings(settings.data_dir, database_url=settings.database_url)


#: The secret that readers of a mirror send; never a flag, because lists of processes show flags.
SECRET = "ERS_MIRROR_SECRET"  # noqa: S105 - the name of a variable


async def copy_api(
    base_url: str,
    place: str,
    authorization: Callable[[], Awaitable[str]],
    tell: Callable[[str], None],
    *,
    forget: bool = False,
) -> CopyTotals:
    """Copy the data that an account can read at an API into a mirror.

    Args:
        forget: as for :class:`Copier`.

    Raises:
        InvalidSetting: the login would be sent unencrypted over a network.
        ErsError: as :meth:`Copier.run`.
    """
    check_installed("proxy")
    if base_url.startswith("http://") and not is_loopback(base_url):
        raise InvalidSetting(
            "the login would be sent without encryption",
            hint="name an address of the API that begins with https://",
        )
    from encrypted_records.client.transport import Transport  # noqa: PLC0415 - slow to import
    from encrypted_records.mirror.copier import Copier  # noqa: PLC0415 - an extra
    from encrypted_records.mirror.layout import open_store  # noqa: PLC0415 - an extra

    async with Transport(base_url, auth=authorization) as transport:
        copier = Copier(transport, open_store(place), tell, forget=forget)
        await copier.run()
        return copier.copied


def authorization_of_service(text: str) -> str:
    """The Authorization value for the API, from a service's secret key.

    Raises:
        Malformed: it is not the secret key of a service.
    """
    check_installed("proxy")
    from encrypted_records.mirror.copier import authorization_of  # noqa: PLC0415 - an extra

    return authorization_of(text)


def serve_mirror(settings: Settings, place: str) -> None:
    """Serve a mirror in this process until it is told to stop.

    Raises:
        Startup: it cannot be served here.
        MirrorBroken: there is no complete mirror.
    """
    check_installed("proxy")
    check_port(settings.api_host, settings.api_port, "api")
    from encrypted_records.mirror import serving  # noqa: PLC0415 - an extra
    from encrypted_records.mirror.layout import open_store  # noqa: PLC0415 - an extra

    secret = os.environ.get(SECRET) or None
    host, port = settings.api_host, settings.api_port
    serving.run(open_store(place), host, port, secret, settings.log_format)


def verify_mirror(place: str, data_dir: Path, tell: Callable[[str], None]) -> MirrorProof:
    """Verify a mirror against its signed logs, and against the observations of a data folder's
    proxy, if there are any.

    Raises:
        MirrorBroken: there is no complete mirror.
        Startup: the proxy's observations cannot be read.
    """
    check_installed("proxy")
    from encrypted_records.mirror.layout import open_store  # noqa: PLC0415 - an extra
    from encrypted_records.mirror.verifying import MirrorVerifier  # noqa: PLC0415 - an extra

    folder = data_dir / "proxy"
    if not (folder / "heads.sqlite3").exists():
        return MirrorVerifier(open_store(place), tell).run()
    from encrypted_records.proxy.stores import Memory  # noqa: PLC0415 - an extra

    with closing(Memory(folder)) as memory:
        return MirrorVerifier(open_store(place), tell, memory).run()


@contextmanager
def mirror_to_read(place: str) -> Iterator[tuple[str, str]]:
    """The URL of a mirror, and its secret; a mirror in a folder or bucket is served only to this
    process until the block ends.

    Raises:
        MirrorBroken: there is no complete mirror.
        InvalidSetting: the address is invalid.
    """
    if place.startswith(("http://", "https://")):
        secret = os.environ.get(SECRET, "")
        if place.startswith("http://") and secret and not is_loopback(place):
            raise InvalidSetting(
                "the mirror's secret would be sent without encryption",
                hint="name an address that begins with https://",
            )
        yield place.rstrip("/"), secret
        return
    from encrypted_records.mirror import serving  # noqa: PLC0415 - an extra
    from encrypted_records.mirror.layout import open_store  # noqa: PLC0415 - an extra

    with serving.serving_inline(open_store(place)) as (url, secret):
        yield url, secret
