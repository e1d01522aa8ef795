"""What of a job is sealed before it goes to disk: its token, and its list of flaws.

The keys are of the user's keyring (docs/SPEC.md, section 12), so that a locked keyring keeps a job
waiting, and whoever copies the folder can neither go on with it nor read the flaws.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Sequence

import msgspec

from encrypted_records.crypto.format import NONCE_BYTES
from encrypted_records.errors import DoesNotOpen, Flaw
from encrypted_records.proxy.jobs import Job
from encrypted_records.proxy.keyrings import Keyrings

#: Flaws that are sealed together.
_AT_ONCE = 500
_VERSION = struct.Struct(">I")
_flaws = msgspec.msgpack.Decoder(list[Flaw])


class JobSecrets:
    def __init__(self, keyrings: Keyrings) -> None:
        self._keyrings = keyrings

    def seal_token(self, user: bytes, job: bytes, token: str) -> bytes:
        return self._seal(user, job, "token", token.encode())

    def open_token(self, job: Job, sealed: bytes) -> str:
        """
        Raises:
            DoesNotOpen: altered, or of another job or user.
            Closed: the keyring is locked or damaged.
            KeyMissing: the keyring lacks the version that sealed it.
        """
        return self._open(job.user, job.id, "token", sealed).decode()

    def seal_flaws(self, job: Job, flaws: Sequence[Flaw]) -> list[bytes]:
        """The list in pieces of 500."""
        pieces = [flaws[start : start + _AT_ONCE] for start in range(0, len(flaws), _AT_ONCE)]
        return [
            self._seal(job.user, job.id, f"flaws/{number}", msgspec.msgpack.encode(piece))
            for number, piece in enumerate(pieces)
        ]

    def open_flaws(self, job: Job, sealed: Iterable[bytes]) -> list[Flaw]:
        """Undo :meth:`seal_flaws`; raises as :meth:`open_token`."""
        return [
            flaw
            for number, piece in enumerate(sealed)
            for flaw in _flaws.decode(self._open(job.user, job.id, f"flaws/{number}", piece))
        ]

    def _seal(self, user: bytes, job: bytes, label: str, plain: bytes) -> bytes:
        keyring = self._keyrings.of(user)
        version, nonce = keyring.newest, os.urandom(NONCE_BYTES)
        key = keyring.root(version).job(job, version)
        return _VERSION.pack(version) + nonce + key.encrypt(nonce, plain, job + label.encode())

    def _open(self, user: bytes, job: bytes, label: str, sealed: bytes) -> bytes:
        begin = _VERSION.size + NONCE_BYTES
        if len(sealed) < begin:
            raise DoesNotOpen("what is kept of a job is cut short")
        (version,) = _VERSION.unpack_from(sealed)
        key = self._keyrings.of(user).root(version).job(job, version)
        nonce = sealed[_VERSION.size : begin]
        return key.decrypt(nonce, sealed[begin:], job + label.encode())
