"""The signer of a commit or checkpoint, and the definitions that a log's data may be under.

Signers are verified by the organization's roster (docs/SPEC.md, section 7.5). Readers verify them
themselves. The API verifies them too, so that a client without a member's key cannot add a commit
that all readers reject, which would make the schema unusable.

A commit may add data made under an earlier definition if no definition since has demanded more
(docs/SPEC.md, section 7.4). Readers apply the same rules to the log, with the same code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.utils import timezone

from encrypted_records.errors import BadInput, Conflict, Malformed, StaleDefinition
from encrypted_records.model import ids, wire
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.definition_changes import (
    DefinitionHistory,
    NotFollowing,
    list_changes,
    refuse_changes,
)
from encrypted_records.model.definition_parser import parse_canonical, show_canonical
from encrypted_records.model.records import CommitBody
from encrypted_records.server import signatures, sql
from encrypted_records.server.accounts.models import User
from encrypted_records.server.commits.checks import CheckedCommit, require
from encrypted_records.server.datasets.models import LogDefinition, Schema
from encrypted_records.server.db.statements import Statement

_NOBODY, _NOTHING = bytes(16), bytes(32)
_signer = Statement(sql.SIGNER)


@dataclass(frozen=True, slots=True)
class CommitSigner:
    """The roster's view of a user: number and digest of the roster's head, 0 if there is no roster;
    the member's keys, None if the user is not a member; whether the schema is placed, and the epoch
    of its dataset's keys.
    """

    number: int
    digest: bytes
    keys: bytes | None
    is_placed: bool
    epoch: int | None

    @classmethod
    def of(cls, row: Sequence[Any]) -> CommitSigner:
        """The row of :data:`..sql.SIGNER`."""
        number, digest, keys, is_placed, epoch = row
        shown = None if keys is None else bytes(keys)
        return cls(number, bytes(digest), shown, bool(is_placed), epoch)


@dataclass(frozen=True)
class Signed:
    """A signed commit or checkpoint, by its ``name``: the stated signer, and the signed bytes."""

    name: str
    body: CommitBody | wire.CheckpointBody
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
    """Check that a new commit has a valid signer, the current roster and the current epoch. The
    schema is locked.

    Args:
        signer: read under the lock; a signer read together with the schema may be outdated.

    Raises:
        BadInput: ``invalid_commit``.
        Conflict: ``roster_moved``, ``key_mismatch``.
    """
    sent = commit.commit
    signed = Signed("commit", commit.body, sent.signature, wire.commit_message(sent))
    _require_known(user, signed, signer)


def require_signer(user: User, schema: Schema, signed: Signed) -> None:
    """Check the signature of a commit or a checkpoint, under a lock of the schema; see
    :func:`require_signed`.

    Raises:
        BadInput, Conflict: as :meth:`Signed.require` and :func:`require_signed`.
    """
    row = _signer.row(schema=schema.uid, member=signed.body.member)
    assert row is not None, "the schema is locked"
    _require_known(user, signed, CommitSigner.of(row))


def _require_known(user: User, signed: Signed, signer: CommitSigner) -> None:
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


def history_of(schema: Schema) -> DefinitionHistory:
    """The definitions of a schema's log; before its first commit, the schema's current
    definition.
    """
    rows = LogDefinition.objects.filter(schema=schema).order_by("version")
    by_digest = {bytes(row.digest): row for row in rows}
    if not by_digest:
        return DefinitionHistory.first(schema.parse())
    return DefinitionHistory(
        schema.parse(),
        {digest: row.parse() for digest, row in by_digest.items()},
        frozenset(digest for digest, row in by_digest.items() if row.usable),
    )


def require_usable(schema: Schema, digest: bytes) -> SchemaDefinition:
    """The definition with this digest, if data may still be added under it.

    Raises:
        StaleDefinition: it was replaced by a definition that demands more, or is not in the log.
    """
    if digest == bytes(schema.definition_digest):
        return schema.parse()
    row = LogDefinition.objects.filter(schema=schema, digest=digest, usable=True).first()
    if row is None:
        raise StaleDefinition(
            "the schema's definition is not the one for which the records were encrypted"
        )
    return row.parse()


def find_usable(schema: Schema, digest: bytes, *, stands: bool) -> SchemaDefinition | None:
    """The definition under which a part may be staged; None if the log does not have it yet.

    Args:
        stands: whether the part's groups replace others. Their commit may bring the definition that
            the rows are sealed for; the API then compares the two.

    Raises:
        StaleDefinition: as :func:`require_usable`.
    """
    try:
        return require_usable(schema, digest)
    except StaleDefinition:
        if stands:
            return None
        raise


def definitions_of(schema: Schema, body: CommitBody) -> dict[bytes, SchemaDefinition]:
    """The definitions that a commit's groups and segments name, by digest.

    Raises:
        StaleDefinition: as :func:`require_usable`.
        BadInput: ``invalid_commit``; the text in the commit is not a definition.
    """
    brought = {body.definition} if body.definition_text else set()
    named = body.definitions_of_added
    known = {digest: require_usable(schema, digest) for digest in named - brought}
    return known | {digest: read_text(body) for digest in named & brought}


def read_text(body: CommitBody) -> SchemaDefinition:
    """The definition that a commit brings.

    Raises:
        BadInput: ``invalid_commit``; its text is not a definition.
    """
    try:
        return parse_canonical(body.definition_text)
    except Malformed as error:
        raise BadInput(error.message, code="invalid_commit") from None


def require_current(schema: Schema, body: CommitBody) -> None:
    """Check that the commit is under the current definition, or brings a valid successor.

    Raises:
        BadInput: ``invalid_commit``.
        StaleDefinition: the definition has changed.
        Conflict: ``log_moved``: another definition came before the commit's; or
            ``needs_reencryption``.
    """
    holds = body.definition == bytes(schema.definition_digest)
    if not holds and (schema.version == 0 or not body.definition_text):
        # Checked first: the commit may be valid under the definition that it was made for.
        raise StaleDefinition(
            "the schema's definition is not the one for which the records were encrypted"
        )
    if body.adds_records and not body.exact:
        require(
            not _has_unique_fields(schema, body),
            "a commit adds records to unique fields and does not state that it checked"
            " for equal ones",
        )
    if holds:
        require(
            schema.version > 0 or bool(body.definition_text),
            "the first commit does not contain the definition",
        )
        return
    # Checked first: the writer is not to blame for conflicts with a definition it has not seen.
    if LogDefinition.objects.filter(schema=schema, version__gt=body.seen).exists():
        raise Conflict(
            "the definition follows another one than the current one",
            code="log_moved",
            hint="read the manifest, then make the commit again",
        )
    present, new = schema.parse(), read_text(body)
    require(new.follows(present), "a definition gives a field another id")
    if body.ended:
        # It may drop and convert fields of the definition that its writer has seen as it likes.
        return  # enter_definition requires that it ends all groups
    refuse_changes(list_changes(present, new), proven=bool(body.exact))
    try:
        history_of(schema).then(new, proven=bool(body.exact))
    except NotFollowing as error:
        require(False, str(error))


def _has_unique_fields(schema: Schema, body: CommitBody) -> bool:
    """Whether the definition that a commit is under has unique fields, without parsing it."""
    text = body.definition_text.decode() if body.definition_text else schema.canonical
    # Cannot match inside a string, where quotes are escaped; no other keyword of a field has such a
    # value.
    return '"unique":[[' in text


def enter_definition(
    schema: Schema, body: CommitBody, version: int, *, ends_all: bool
) -> dict[str, Any]:
    """Enter the definition of a commit that becomes ``version``; returns the changed columns of the
    schema's row.

    Args:
        ends_all: whether the commit ends all live groups.

    Raises:
        BadInput: ``invalid_commit``; the commit changes the definition and other data.
    """
    if body.definition == bytes(schema.definition_digest):
        if schema.version == 0:
            _enter_new(schema, body, version)
        return {}
    definitions = LogDefinition.objects.filter(schema=schema)
    require(
        ends_all or not body.changes_data,
        "a commit that changes the definition contains other changes",
    )
    if ends_all:
        definitions.delete()
    else:
        usable = history_of(schema).then(read_text(body), proven=bool(body.exact)).usable
        for row in definitions.filter(usable=True):
            if bytes(row.digest) not in usable:
                definitions.filter(pk=row.pk).update(usable=False)
    _enter_new(schema, body, version)
    canonical = body.definition_text.decode()
    return {
        # Show the log's definition until the owner sends it with titles and descriptions.
        "definition": show_canonical(canonical),
        "canonical": canonical,
        "definition_digest": body.definition,
        "modified": timezone.now(),
    }


def _enter_new(schema: Schema, body: CommitBody, version: int) -> None:
    LogDefinition.objects.update_or_create(
        schema=schema,
        digest=body.definition,
        defaults={
            "canonical": body.definition_text.decode(),
            "version": version,
            "usable": True,
        },
    )
