"""Signers of commits and checkpoints, verified by the organization's roster (docs/SPEC.md, section
7.5).

Readers verify signers themselves. The API verifies them too, so that a client without a member's
key cannot add a commit that all readers reject, which would make the schema unusable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from encrypted_records.errors import BadInput, Conflict
from encrypted_records.model import ids, wire
from encrypted_records.model.records import CommitBody
from encrypted_records.model.wire import CheckpointBody
from encrypted_records.server import signatures, sql
from encrypted_records.server.accounts.models import User
from encrypted_records.server.commits.checks import CheckedCommit
from encrypted_records.server.datasets.models import Schema
from encrypted_records.server.db.statements import Statement

_NOBODY, _NOTHING = bytes(16), bytes(32)
_signer = Statement(sql.SIGNER)


@dataclass(frozen=True, slots=True)
class CommitSigner:
    """A member by the roster: number and digest of the head of the organization's roster, 0 if
    there is none; the member's keys, None if not a member; whether the schema is placed, and the
    epoch of its dataset's keys.
    """

    number: int
    digest: bytes
    keys: bytes | None
    is_placed: bool
    epoch: int | None

    @classmethod
    def of(cls, row: Sequence[Any]) -> CommitSigner:
        """The row of :data:`.sql.SIGNER`."""
        number, digest, keys, is_placed, epoch = row
        shown = None if keys is None else bytes(keys)
        return cls(number, bytes(digest), shown, bool(is_placed), epoch)


@dataclass(frozen=True)
class Signed:
    """A commit or a checkpoint, by its ``name``: who says to have signed it, and over what."""

    name: str
    body: CommitBody | CheckpointBody
    signature: bytes
    message: bytes

    def require(self, holds: bool, rule: str) -> None:
        """
        Raises:
            BadInput: ``invalid_commit`` or ``invalid_checkpoint``, naming the rule.
        """
        if not holds:
            raise BadInput(rule, code=f"invalid_{self.name}")


def require_signed(user: User, commit: CheckedCommit, signer: CommitSigner) -> None:
    """Check who signed a new commit, and that it is of the present roster and epoch; the schema is
    locked.

    Args:
        signer: read under the lock: what was read with the schema may be older.

    Raises:
        BadInput: ``invalid_commit``.
        Conflict: ``roster_moved``, ``key_mismatch``.
    """
    sent = commit.commit
    signed = Signed("commit", commit.body, sent.signature, wire.commit_message(sent))
    _require(user, signed, signer)


def require(user: User, schema: Schema, signed: Signed) -> None:
    """Check the signature of a commit or a checkpoint, under a lock of the schema; see
    :func:`require_signed`.

    Raises:
        BadInput, Conflict: as :meth:`Signed.require` and :func:`require_signed`.
    """
    row = _signer.row(schema=schema.uid, member=signed.body.member)
    assert row is not None, "the schema is locked"
    _require(user, signed, CommitSigner.of(row))


def _require(user: User, signed: Signed, signer: CommitSigner) -> None:
    name, body = signed.name, signed.body
    if signer.keys is None:
        _refuse_unknown_signer(user, signed, signer)
        return
    _require_head(signed, signer)
    _require_sender(user, signed)
    right = signatures.is_by(signer.keys, signed.signature, signed.message)
    signed.require(right, f"the signature of the {name} is wrong")
    if signer.epoch is None or not signer.is_placed:
        raise BadInput("the roster does not place the schema", code=f"invalid_{name}")
    if body.key_version != signer.epoch:
        raise Conflict(
            f"the dataset's keys are now of epoch {signer.epoch}",
            code="key_mismatch",
            hint=f"read the roster to its end, and create the {name} again under its newest keys",
        )


def _refuse_unknown_signer(user: User, signed: Signed, signer: CommitSigner) -> None:
    """Refuse a signer who is not in the roster; without a roster there are no signers.

    Raises:
        BadInput, Conflict: as for :func:`require_signed`.
    """
    name, body = signed.name, signed.body
    if not signer.number:
        signed.require(
            not body.roster and not signed.signature,
            f"a {name} is signed, but the organization has no roster",
        )
        named = (body.roster_digest, body.member)
        signed.require(
            named == (_NOTHING, _NOBODY),
            f"a {name} names a signer, but the organization has no roster",
        )
        return
    _require_head(signed, signer)
    _require_sender(user, signed)
    raise Conflict(
        f"the signer of the {name} is not in the roster",
        code="roster_moved",
        hint="read the roster to its end; it shows who is in the organization",
    )


def _require_head(signed: Signed, signer: CommitSigner) -> None:
    if (signed.body.roster, signed.body.roster_digest) != (signer.number, signer.digest):
        raise Conflict(
            "the roster of the organization has changed",
            code="roster_moved",
            hint=f"read the roster to its end, and sign the {signed.name} again",
        )


def _require_sender(user: User, signed: Signed) -> None:
    member = ids.to_text(signed.body.member)
    signed.require(
        member == user.pk, f"a {signed.name} was signed by another member than the one who sends it"
    )
