"""Copy, serve and verify mirrors, for the commands that do; :mod:`encrypted_records.mirror` does
the work."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from encrypted_records.cli.settings import Settings
from encrypted_records.cli.state_file import is_loopback
from encrypted_records.cli.supervise.extras import check_installed
from encrypted_records.cli.supervise.ports import check_port
from encrypted_records.errors import InvalidSetting

if TYPE_CHECKING:
    from encrypted_records.mirror.copier import CopyTotals
    from encrypted_records.mirror.verifying import MirrorProof

#: The secret that readers of a mirror show; never a flag, which lists of processes show.
SECRET = "ERS_MIRROR_SECRET"  # noqa: S105 - the name of a variable


async def copy_api(
    base_url: str,
    place: str,
    authorization: Callable[[], Awaitable[str]],
    tell: Callable[[str], None],
    *,
    forget: bool = False,
) -> CopyTotals:
    """Copy what an account reads at an API into a mirror.

    Args:
        forget: as for :class:`Copier`.

    Raises:
        InvalidSetting: the login would go over a network in the clear.
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
    from encrypted_records.mirror.store import open_store  # noqa: PLC0415 - an extra

    async with Transport(base_url, auth=authorization) as transport:
        copier = Copier(transport, open_store(place), tell, forget=forget)
        await copier.run()
        return copier.copied


def authorization_of_service(text: str) -> str:
    """The Authorization value at the API of a service, from its string.

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
    from encrypted_records.mirror.store import open_store  # noqa: PLC0415 - an extra

    secret = os.environ.get(SECRET) or None
    host, port = settings.api_host, settings.api_port
    serving.run(open_store(place), host, port, secret, settings.log_format)


def verify_mirror(place: str, data_dir: Path, tell: Callable[[str], None]) -> MirrorProof:
    """Check all of a mirror against its signed logs, and against what the proxy of a data folder
    has seen, where there is one.

    Raises:
        MirrorBroken: there is no complete mirror.
        Startup: what the proxy has seen cannot be read.
    """
    check_installed("proxy")
    from encrypted_records.mirror.store import open_store  # noqa: PLC0415 - an extra
    from encrypted_records.mirror.verifying import MirrorVerifier  # noqa: PLC0415 - an extra

    folder = data_dir / "proxy"
    if not (folder / "heads.sqlite3").exists():
        return MirrorVerifier(open_store(place), tell).run()
    from encrypted_records.proxy.stores import Memory  # noqa: PLC0415 - an extra

    with closing(Memory(folder)) as memory:
        return MirrorVerifier(open_store(place), tell, memory).run()


@contextmanager
def mirror_to_read(place: str) -> Iterator[tuple[str, str]]:
    """The URL of a mirror, and its secret: one in a folder or bucket is served to this process
    alone until the block ends.

    Raises:
        MirrorBroken: there is no complete mirror.
        InvalidSetting: the address is not one.
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
    from encrypted_records.mirror.store import open_store  # noqa: PLC0415 - an extra

    with serving.serving_beside(open_store(place)) as (url, secret):
        yield url, secret
