"""The definitions of a schema's log: which one holds, and which the rest of its data may be under.

A commit may add what was made under an earlier definition, as long as none demanded more since
(docs/SPEC.md, section 7.4). Readers hold the log to the same rules, by the same code.
"""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from encrypted_records.errors import BadInput, Conflict, Malformed, StaleDefinition
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.definition_changes import (
    DefinitionHistory,
    NotFollowing,
    list_changes,
    refuse_changes,
)
from encrypted_records.model.definition_parser import parse_canonical, show_canonical
from encrypted_records.model.records import CommitBody
from encrypted_records.server.commits.checks import require
from encrypted_records.server.datasets.models import LogDefinition, Schema


def history_of(schema: Schema) -> DefinitionHistory:
    """The definitions of a schema's log; before its first commit, the one that it has."""
    rows = LogDefinition.objects.filter(schema=schema).order_by("version")
    every = {bytes(row.digest): row for row in rows}
    if not every:
        return DefinitionHistory.first(schema.parse())
    return DefinitionHistory(
        schema.parse(),
        {digest: row.parse() for digest, row in every.items()},
        frozenset(digest for digest, row in every.items() if row.usable),
    )


def require_usable(schema: Schema, digest: bytes) -> SchemaDefinition:
    """The definition of this digest, under which something may be added.

    Raises:
        StaleDefinition: it is not the present one, and was replaced by one that demands more, or is
            none of the log's.
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
    """The definition under which a part may be staged; None of one that the log has not got yet.

    Args:
        stands: whether the part's groups stand for others: their commit may bring a definition that
            the rows are sealed for, and the API compares them then.

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
        BadInput: ``invalid_commit``; the text that it brings is not one of a definition.
    """
    brought = {body.definition} if body.definition_text else set()
    named = body.definitions_of_added
    known = {digest: require_usable(schema, digest) for digest in named - brought}
    return known | {digest: read_text(body) for digest in named & brought}


def read_text(body: CommitBody) -> SchemaDefinition:
    """The definition that a commit brings.

    Raises:
        BadInput: ``invalid_commit``; the text is not one of a definition.
    """
    try:
        return parse_canonical(body.definition_text)
    except Malformed as error:
        raise BadInput(error.message, code="invalid_commit") from None


def require_current(schema: Schema, body: CommitBody) -> None:
    """Check that the commit is under the present definition, or brings one that may follow it.

    Raises:
        BadInput: ``invalid_commit``.
        StaleDefinition: the definition has changed.
        Conflict: ``log_moved``, since the writer made this one; or ``needs_reencryption``.
    """
    holds = body.definition == bytes(schema.definition_digest)
    if not holds and (schema.version == 0 or not body.definition_text):
        # Whatever else is wrong with it may be right under the definition that it was made for.
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
    # First: of a definition that the writer has not seen, nothing that is wrong is its fault.
    if LogDefinition.objects.filter(schema=schema, version__gt=body.seen).exists():
        raise Conflict(
            "the definition follows another one than the current one",
            code="log_moved",
            hint="read the manifest, then make the commit again",
        )
    present, new = schema.parse(), read_text(body)
    require(new.follows(present), "a definition gives a field another id")
    if body.ended:
        # It may leave out and convert what it likes of the definition that its writer has seen.
        return  # else than by ending all that was sealed under the present one, it does more
    refuse_changes(list_changes(present, new), proven=bool(body.exact))
    try:
        history_of(schema).then(new, proven=bool(body.exact))
    except NotFollowing as error:
        require(False, str(error))


def _has_unique_fields(schema: Schema, body: CommitBody) -> bool:
    """Whether the definition that a commit is under has unique fields; nothing is parsed."""
    text = body.definition_text.decode() if body.definition_text else schema.canonical
    # A quote inside a string has a backslash before it, and no field's keyword has such a value.
    return '"unique":[[' in text


def enter(schema: Schema, body: CommitBody, version: int, *, ends_all: bool) -> dict[str, Any]:
    """Enter the definition of a commit that becomes ``version``; what the schema's row says of it.

    Args:
        ends_all: whether the commit ends all groups that live.

    Raises:
        BadInput: ``invalid_commit``; it brings another definition, and does something else too.
    """
    if body.definition == bytes(schema.definition_digest):
        if schema.version == 0:
            _enter(schema, body, version)
        return {}
    every = LogDefinition.objects.filter(schema=schema)
    require(
        ends_all or not body.changes_data,
        "a commit that changes the definition contains other changes",
    )
    if ends_all:
        every.delete()
    else:
        usable = history_of(schema).then(read_text(body), proven=bool(body.exact)).usable
        for row in every.filter(usable=True):
            if bytes(row.digest) not in usable:
                every.filter(pk=row.pk).update(usable=False)
    _enter(schema, body, version)
    canonical = body.definition_text.decode()
    return {
        # What is shown is the log's, until its owner sends it with titles and descriptions.
        "definition": show_canonical(canonical),
        "canonical": canonical,
        "definition_digest": body.definition,
        "modified": timezone.now(),
    }


def _enter(schema: Schema, body: CommitBody, version: int) -> None:
    LogDefinition.objects.update_or_create(
        schema=schema,
        digest=body.definition,
        defaults={
            "canonical": body.definition_text.decode(),
            "version": version,
            "usable": True,
        },
    )
