"""Who signed a commit or a checkpoint, by the organization's roster (docs/SPEC.md, section 7.5).

Readers verify this for themselves. The API does too, so that somebody who has no key of a member
cannot add a commit that no reader takes, and that would end the schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Exists, OuterRef, Subquery

from encrypted_records.errors import BadInput, Conflict
from encrypted_records.model import ids, wire
from encrypted_records.model.checkpoints import CheckpointBody
from encrypted_records.model.records import CommitBody
from encrypted_records.server import signatures
from encrypted_records.server.accounts.models import User
from encrypted_records.server.commits.checks import Checked
from encrypted_records.server.datasets.models import Schema
from encrypted_records.server.db.compiled_queries import Prepared
from encrypted_records.server.db.fields import as_stored
from encrypted_records.server.organizations.roster_tables import DatasetKey, Place

_NOBODY, _NOTHING = bytes(16), bytes(32)
_ORGANIZATION = "dataset__organization"
#: Of a schema and a member who is in its organization: the member's keys, number and digest of the
#: roster's head, whether the schema is placed, and the dataset's epoch. Every commit asks for all
#: of it, so it is one question.
signer = Prepared(
    lambda: (
        Schema.objects.filter(**{f"{_ORGANIZATION}__standings__present": True})
        .annotate(
            is_placed=Exists(
                Place.objects.filter(schema=OuterRef("pk"), dataset=OuterRef("dataset_id"))
            ),
            epoch=Subquery(
                DatasetKey.objects.filter(dataset=OuterRef("dataset_id")).values("epoch")[:1]
            ),
        )
        .values_list(
            f"{_ORGANIZATION}__standings__keys",
            f"{_ORGANIZATION}__roster_number",
            f"{_ORGANIZATION}__roster_digest",
            "is_placed",
            "epoch",
        )
    ),
    "datasets_schema.id",
    "roster_standing.member",
)
#: Number and digest of the head of the roster that a schema's organization has; 0 where none.
roster_head = Prepared(
    lambda: Schema.objects.values_list(
        f"{_ORGANIZATION}__roster_number", f"{_ORGANIZATION}__roster_digest"
    ),
    "datasets_schema.id",
)


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


def require_signed(
    user: User, commit: Checked, head: Sequence[Any], found: Sequence[Any] | None
) -> None:
    """Check who signed a new commit, and that it is of the present roster and epoch; the schema is
    locked.

    Args:
        head, found: the rows of :data:`roster_head` and :data:`signer`, read under the lock: what
            was read with the schema may be older.

    Raises:
        BadInput: ``invalid_commit``.
        Conflict: ``roster_moved``, ``key_mismatch``.
    """
    sent = commit.commit
    signed = Signed("commit", commit.body, sent.signature, wire.commit_message(sent))
    _require(user, signed, head, found)


def require(user: User, schema: Schema, signed: Signed) -> None:
    """As :func:`require_signed`, of either kind; under a lock of the schema.

    Raises:
        BadInput, Conflict: as :meth:`Signed.require` and :func:`require_signed`.
    """
    uid = as_stored(schema.pk)
    rows = signer.rows(uid, signed.body.member)
    head = () if rows else roster_head.rows(uid)[0]
    _require(user, signed, head, rows[0] if rows else None)


def _require(user: User, signed: Signed, head: Sequence[Any], found: Sequence[Any] | None) -> None:
    name, body = signed.name, signed.body
    if found is None:
        _refuse_unknown_signer(user, signed, *head)
        return
    keys, number, digest, is_placed, epoch = found
    _require_head(signed, number, bytes(digest))
    _require_sender(user, signed)
    right = signatures.is_by(bytes(keys), signed.signature, signed.message)
    signed.require(right, f"the signature of the {name} is not right")
    if epoch is None or not is_placed:
        raise BadInput("the roster does not place the schema", code=f"invalid_{name}")
    if body.key_version != epoch:
        raise Conflict(
            f"the dataset's keys are of epoch {epoch} by now",
            code="key_mismatch",
            hint=f"read the roster to its end, and make the {name} again under its newest keys",
        )


def _refuse_unknown_signer(user: User, signed: Signed, number: int, digest: bytes) -> None:
    """Of what names nobody who is in the roster: right where there is none.

    Raises:
        BadInput, Conflict: as :func:`require_signed`.
    """
    name, body = signed.name, signed.body
    if not number:
        signed.require(
            not body.roster and not signed.signature,
            f"a {name} is signed, and the organization has no roster",
        )
        named = (body.roster_digest, body.member)
        signed.require(named == (_NOTHING, _NOBODY), f"a {name} names a member of no roster")
        return
    _require_head(signed, number, bytes(digest))
    _require_sender(user, signed)
    raise Conflict(
        f"the roster does not have who signed the {name}",
        code="roster_moved",
        hint="read the roster to its end; it says who is in the organization",
    )


def _require_head(signed: Signed, present: int, digest: bytes) -> None:
    if (signed.body.roster, signed.body.roster_digest) != (present, digest):
        raise Conflict(
            "the roster of the organization has moved on",
            code="roster_moved",
            hint=f"read the roster to its end, and sign the {signed.name} again",
        )


def _require_sender(user: User, signed: Signed) -> None:
    member = ids.to_text(signed.body.member)
    signed.require(member == user.pk, f"a {signed.name} is by another member than who sends it")
