"""State that commands remember between runs, in small JSON files that only their owner can read."""

from __future__ import annotations

import fcntl
import ipaddress
from pathlib import Path
from typing import IO, Any, Generic, TypeVar
from urllib.parse import urlsplit

import msgspec
import platformdirs

from encrypted_records.cli.data_folder import for_owner, replace_file
from encrypted_records.cli.settings import APP
from encrypted_records.errors import InvalidSetting
from encrypted_records.model import credentials
from encrypted_records.model.credentials import DeviceSecret

Kept = TypeVar("Kept")


def door_path(port: int, folder: Path | None = None) -> Path:
    """The path of the file with the local-user secret of the proxy on ``port`` of this machine."""
    return (folder or platformdirs.user_state_path(APP)) / f"door-{port}"


def read_door(proxy_url: str) -> DeviceSecret | None:
    """The door of the proxy at a URL, if it is on this machine and belongs to this user."""
    parts = urlsplit(proxy_url)
    if not is_loopback(proxy_url):
        return None
    try:
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
        secret = credentials.parse_device_secret(door_path(port).read_text("ascii").strip())
    except (OSError, ValueError, KeyError):
        return None
    return secret if secret is not None and secret.id == credentials.DOOR else None


def is_loopback(url: str) -> bool:
    """Whether a URL names this machine."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class StateFile(Generic[Kept]):
    """Values of one type by key.

    Args:
        name: the file's name, without its suffix.
        kind: the type of a value, for msgspec.
    """

    def __init__(self, name: str, kind: type[Kept], folder: Path | None = None) -> None:
        self.folder = folder or platformdirs.user_state_path(APP)
        self.path = self.folder / f"{name}.json"
        self._kind: Any = dict[str, kind]  # type: ignore[valid-type] # a type at run time

    def read(self) -> dict[str, Kept]:
        """
        Raises:
            InvalidSetting: the file is corrupt, or cannot be read.
        """
        try:
            entries: dict[str, Kept] = msgspec.json.decode(self.path.read_bytes(), type=self._kind)
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError):
            raise InvalidSetting(
                f"the file {self.path} cannot be read",
                hint="delete it; logins and the like stored in it have to be repeated",
            ) from None
        return entries

    def put(self, key: str, value: Kept | None) -> None:
        """Store a value, or delete it with None; safe against concurrent commands."""
        with self.lock_file("put") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            kept = {**self.read(), key: value}
            if left := {name: value for name, value in kept.items() if value is not None}:
                replace_file(self.path, msgspec.json.encode(left))
            else:
                self.path.unlink(missing_ok=True)

    def lock_file(self, purpose: str) -> IO[str]:
        """An open file for locking; closing it releases the lock."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return open(self.path.with_suffix(f".{purpose}.lock"), "a", opener=for_owner)
