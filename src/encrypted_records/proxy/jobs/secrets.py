"""Seals what a job keeps on disk: its token, its list of errors, some bad
rows, the note of its file, and how it is read.

The keys are of the user's keyring (docs/SPEC.md, section 12), so that a job waits while the keyring
is locked, and a copy of the folder is no use to continue the job or to read the errors.

A sender's note on a file: its name, when it was changed, and a digest of its ends. Pure.

It is plaintext of the user, so it is kept sealed in this proxy and goes nowhere else. By it an
upload is known again that was stored before.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence

import msgspec

from encrypted_records import runtime
from encrypted_records.crypto.format import NONCE_BYTES
from encrypted_records.errors import DoesNotOpen, Flaw
from encrypted_records.proxy.jobs.job import StoredJob
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.keyrings.store import Keyrings

#: Errors that are sealed together.
_AT_ONCE = 500
_VERSION = struct.Struct(">I")
#: Bad rows: the number of each, and its cells as text.
Examples = list[tuple[int, dict[str, str]]]
_examples = msgspec.msgpack.Decoder(Examples)
_errors = msgspec.msgpack.Decoder(list[Flaw])


class JobSecrets:
    def __init__(self, keyrings: Keyrings) -> None:
        self._keyrings = keyrings

    def seal_token(self, holder: Holder, job: bytes, token: str) -> bytes:
        return self._seal(holder, job, "token", token.encode())

    def open_token(self, job: StoredJob, sealed: bytes) -> str:
        """
        Raises:
            DoesNotOpen: altered, or of another job or user.
            Closed: the keyring is locked or damaged.
            KeyMissing: the keyring lacks the version that sealed it.
        """
        return self._open(Holder.of_accepted_work(job.user), job.id, "token", sealed).decode()

    def seal_note(self, holder: Holder, job: bytes, note: FileNote) -> bytes:
        return self._seal(holder, job, "file", encode(note))

    def open_note(self, holder: Holder, job: bytes, sealed: bytes) -> FileNote:
        """Undo :meth:`seal_note`, for the owner of the job; raises as :meth:`open_token`."""
        return decode(self._open(holder, job, "file", sealed))

    def seal_reading(self, holder: Holder, job: bytes, reading: bytes) -> bytes:
        return self._seal(holder, job, "reading", reading)

    def open_reading(self, job: StoredJob) -> bytes | None:
        """The reading of the job's file; None without one. Raises as :meth:`open_token`."""
        if job.sealed_reading is None:
            return None
        holder = Holder.of_accepted_work(job.user)
        return self._open(holder, job.id, "reading", job.sealed_reading)

    def seal_report(self, job: StoredJob, report: bytes | None) -> bytes | None:
        """Seal the report of a file with a reading; None where there is no reading."""
        if report is None:
            return None
        return self._seal(Holder.of_accepted_work(job.user), job.id, "report", report)

    def open_report(self, holder: Holder, job: StoredJob, sealed: bytes) -> bytes:
        """Undo :meth:`seal_report`, for the owner of the job; raises as :meth:`open_token`."""
        return self._open(holder, job.id, "report", sealed)

    def seal_errors(
        self, job: StoredJob, errors: Sequence[Flaw], kind: str = "flaws"
    ) -> list[bytes]:
        """The list in pieces of 500; ``kind`` is what the list is of."""
        pieces = [errors[start : start + _AT_ONCE] for start in range(0, len(errors), _AT_ONCE)]
        holder = Holder.of_accepted_work(job.user)
        return [
            self._seal(holder, job.id, f"{kind}/{number}", msgspec.msgpack.encode(piece))
            for number, piece in enumerate(pieces)
        ]

    def open_errors(
        self, holder: Holder, job: StoredJob, sealed: Iterable[bytes], kind: str = "flaws"
    ) -> list[Flaw]:
        """Undo :meth:`seal_errors`, for the owner of the job; raises as :meth:`open_token`."""
        return [
            error
            for number, piece in enumerate(sealed)
            for error in _errors.decode(self._open(holder, job.id, f"{kind}/{number}", piece))
        ]

    def seal_examples(self, job: StoredJob, rows: Examples) -> bytes | None:
        """The cells of bad rows; None where there are none."""
        if not rows:
            return None
        return self._seal(
            Holder.of_accepted_work(job.user), job.id, "rows", msgspec.msgpack.encode(rows)
        )

    def open_examples(self, holder: Holder, job: StoredJob, sealed: bytes) -> Examples:
        """Undo :meth:`seal_examples`, for the owner of the job; raises as :meth:`open_token`."""
        return _examples.decode(self._open(holder, job.id, "rows", sealed))

    def _seal(self, holder: Holder, job: bytes, label: str, plain: bytes) -> bytes:
        keyring = self._keyrings.of(holder)
        version, nonce = keyring.newest, runtime.random_bytes(NONCE_BYTES)
        key = keyring.root(version).job(job, version)
        return _VERSION.pack(version) + nonce + key.encrypt(nonce, plain, job + label.encode())

    def _open(self, holder: Holder, job: bytes, label: str, sealed: bytes) -> bytes:
        begin = _VERSION.size + NONCE_BYTES
        if len(sealed) < begin:
            raise DoesNotOpen("the stored data of a job is truncated")
        (version,) = _VERSION.unpack_from(sealed)
        key = self._keyrings.of(holder).root(version).job(job, version)
        nonce = sealed[_VERSION.size : begin]
        return key.decrypt(nonce, sealed[begin:], job + label.encode())


_DIGEST = re.compile(r"[0-9a-f]{64}")
_MOMENT = re.compile(r"[0-9]{1,16}")
MAX_NAME = 400
#: How much of either end of a file is digested.
END_BYTES = 64 << 10


class FileNote(msgspec.Struct, frozen=True, array_like=True):
    """``changed`` is in milliseconds since 1970. ``ends`` is SHA-256, in hexadecimal, of the first
    and the last 64 KiB of the file, one after the other."""

    name: str = ""
    changed: int | None = None
    ends: str | None = None

    def __repr__(self) -> str:
        return "<FileNote>"

    @classmethod
    def of_texts(cls, name: str | None, changed: str | None, ends: str | None) -> FileNote:
        """Parse a note from the texts of a request; a malformed text counts as absent."""
        return cls(
            (name or "")[:MAX_NAME],
            int(changed) if changed and _MOMENT.fullmatch(changed) else None,
            ends if ends and _DIGEST.fullmatch(ends) else None,
        )

    def is_same(self, other: FileNote) -> bool:
        """Whether this is, as far as can be told, the file that ``other`` is of, whose size is the
        same."""
        if self.ends and other.ends:
            return self.ends == other.ends
        if None not in (self.changed, other.changed) and self.changed != other.changed:
            return False
        return bool(self.name) and self.name == other.name


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(FileNote).decode
