"""The door: a secret in a file that only the user of the operating system can read who runs the
proxy, and who can read every other file of the proxy as well. Made at each start."""

from __future__ import annotations

import hmac
from contextlib import suppress
from pathlib import Path

from encrypted_records.model import device_secret
from encrypted_records.model.device_secret import DeviceSecret
from encrypted_records.proxy.disk import atomic_files as durable


class Door:
    """
    Args:
        path: where ``ers`` looks for it; without one there is no door.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._secret = device_secret.generate(device_secret.DOOR)
        if path is not None:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            durable.replace(path, self._secret.text.encode("ascii"))

    @property
    def digest(self) -> bytes:
        return self._secret.digest

    def is_shown_by(self, shown: DeviceSecret | None) -> bool:
        """Whether ``shown`` is the secret of this door."""
        if shown is None or self._path is None:
            return False
        return hmac.compare_digest(shown.digest, self._secret.digest)

    def close(self) -> None:
        """Take the file away, if it is still this door's."""
        if self._path is None:
            return
        with suppress(OSError):
            if self._path.read_bytes() == self._secret.text.encode("ascii"):
                self._path.unlink()
