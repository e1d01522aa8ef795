"""The definition at each point of a log: commits contain it, and the API is not trusted.

Before the first commit there is no log, and the definition is what the API says it is
(docs/SPEC.md, section 7.4).
"""

from __future__ import annotations

from collections.abc import Collection

from encrypted_records.errors import LogBroken, Malformed, StaleDefinition
from encrypted_records.model.ciphertext_lengths import is_class
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.definition_changes import DefinitionHistory, NotFollowing
from encrypted_records.model.definition_parser import parse_canonical
from encrypted_records.model.records import CommitBody


def follow(
    before: DefinitionHistory | None, body: CommitBody, live: Collection[bytes], since: int
) -> DefinitionHistory:
    """The definitions that hold from a commit on.

    Args:
        before: those before it; None at the beginning of a log.
        live: the groups before it, by uid.
        since: the log version that brought the definition before it.

    Raises:
        LogBroken: the commit is under no definition that may follow, or adds something that is
            under none of those that may be used.
    """
    history = _follow(before, body, live, since)
    if not body.definitions_of_added <= history.usable:
        raise LogBroken("a commit adds a group or segment of another definition")
    return history


def _follow(
    before: DefinitionHistory | None, body: CommitBody, live: Collection[bytes], since: int
) -> DefinitionHistory:
    if before is not None and body.definition == before.present.digest:
        return before
    if not body.definition_text:
        raise LogBroken("a commit is under a definition that the log does not contain")
    try:
        new = parse_canonical(body.definition_text)
    except Malformed as error:
        raise LogBroken(error.message) from None
    if new.digest != body.definition:
        raise LogBroken("a commit brings another definition than it names")
    if before is None:
        return DefinitionHistory.first(new)
    if body.seen < since:
        # An id may name another field in each, which nothing else would show.
        raise LogBroken("a definition does not follow from the one before it")
    if body.ended and set(body.ended) == set(live):
        if not new.follows(before.present):
            raise LogBroken("a definition gives a field another id")
        return DefinitionHistory.first(new)  # nothing is left that was sealed under another
    if body.changes_data:
        raise LogBroken("a commit changes the definition and something else")
    try:
        return before.then(new, proven=bool(body.exact))
    except NotFollowing as error:
        raise LogBroken(str(error)) from None


def check_groups(body: CommitBody, history: DefinitionHistory, live: Collection[bytes]) -> None:
    """Check that no added group lives already, and what the groups say of their fields.

    Args:
        history: as :func:`follow` gives it.
        live: as for :func:`follow`.

    Raises:
        LogBroken: they have other fields than their definition, or no class of each; or as above.
    """
    uids = {group.uid for group in body.groups}
    if len(uids) != len(body.groups) or any(uid in live for uid in uids):
        raise LogBroken("a commit adds a group that exists")
    if any(group.fields != history.every[group.definition].ids for group in body.groups):
        raise LogBroken("a commit adds a group whose fields are not those of its definition")
    if any(len(group.classes) != len(group.fields) for group in body.groups):
        raise LogBroken("a group does not state a length class for each of its fields")
    if not all(is_class(stated) for group in body.groups for stated in group.classes):
        raise LogBroken("a group states a length class that no field has")


def brings_definition(
    history: DefinitionHistory | None,
    definition: SchemaDefinition,
    made: Collection[bytes],
    *,
    new: bool,
) -> bool:
    """Whether a commit that is drafted under ``definition`` has to bring its text.

    Args:
        made: the definitions that the added groups and segments name.
        new: whether the definition is to take the place of the log's.

    Raises:
        StaleDefinition: the log holds another definition by now, or what is added is of one that
            can no longer be used.
    """
    brings = history is None or history.present.digest != definition.digest
    stale = history is not None and brings and not new
    usable = {definition.digest, *(history.usable if history else ())}
    if stale or not usable.issuperset(made):
        raise StaleDefinition("the schema's definition changed while records were encrypted")
    return brings
