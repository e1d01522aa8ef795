"""Access checks: refuse operations without the right to them, and unsigned data, by name."""

from __future__ import annotations

from encrypted_records.errors import NotAllowed, SchemaUnsigned
from encrypted_records.index.roster.roster import Roster
from encrypted_records.model import roster as form
from encrypted_records.model.signatures import require_shown
from encrypted_records.rules.roster_state import Member


def require_owner(roster: Roster, member: bytes) -> None:
    """
    Raises:
        NotAllowed: ``owners_only``, or ``not_admitted``.
    """
    if not _require_present(roster, member).owns:
        raise NotAllowed(
            "only owners of the organization may do that",
            code="owners_only",
            hint="ask one of them; ers share list shows who they are",
        )


def require_member(roster: Roster, member: bytes, dataset: bytes) -> Member:
    """The member, if it may read any part of the dataset.

    Raises:
        NotAllowed: ``not_shared``, or ``not_admitted``.
    """
    standing = _require_present(roster, member)
    if not standing.reads(dataset):
        raise NotAllowed(
            "this dataset is not shared with that member",
            code="not_shared",
            hint="share it first: ers share set",
        )
    return standing


def require_reader(roster: Roster, member: bytes, schema: bytes) -> None:
    """
    Raises:
        NotAllowed: ``not_shared``, or ``not_admitted``.
    """
    _require_present(roster, member)
    if not roster.may_read(member, schema):
        raise NotAllowed(
            "this schema is not shared with you",
            code="not_shared",
            hint="ask an owner of the organization to share it: ers share set",
        )


def require_writer(roster: Roster, member: bytes, schema: bytes) -> None:
    """
    Raises:
        NotAllowed: ``not_writer``, ``not_shared``, or ``not_admitted``.
    """
    require_reader(roster, member, schema)
    if not roster.may_write(member, schema):
        raise NotAllowed(
            "you can read this schema, but not write to it",
            code="not_writer",
            hint="ask an owner of the organization to make you a writer: ers share set",
        )


def require_signed(roster: Roster, shown: form.Placement) -> None:
    """Make sure that what the API shows of a schema is what was signed. Its definition counts
    before the log's first commit; from then on, the log's does.

    Raises:
        SchemaUnsigned: it was never placed, its name was freed, or something differs.
        RosterWithheld: what was signed is not shown.
    """
    placed = roster.schema(shown.schema)
    if placed is None or not placed.slug:
        raise SchemaUnsigned("this schema was created at the API, and no owner has signed it")
    require_shown(placed.slug)
    signed = form.Placement(
        placed.schema, placed.dataset, placed.slug, placed.name, placed.definition
    )
    if signed != shown:
        raise SchemaUnsigned("the schema as the API shows it is not what was signed")


def _require_present(roster: Roster, member: bytes) -> Member:
    standing = roster.member(member)
    if standing is None or not standing.present:
        raise NotAllowed(
            "you are not in this organization's roster",
            code="not_admitted",
            hint="enter the words of your invitation with ers share accept; an owner's proxy then"
            " admits you",
        )
    return standing
