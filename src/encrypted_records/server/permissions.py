"""Rights of a user: this module alone decides them.

Resources of an organization are reached through a membership. A resource that a user cannot reach
gets the same answer as a missing resource, so strangers learn nothing. Members of an organization
without a roster reach all of it. With a roster, owners do; other members reach the datasets and
schemas that the roster shares with them, and write to those that it lets them write. A database
view states these rights (:data:`.sql.REACH`), and every statement uses it.

A user whose request came with an API token that is limited to some datasets reaches no others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from django.db.models import Exists, Model, OuterRef, Q, QuerySet
from django.utils import timezone

from encrypted_records.errors import Malformed, NotAllowed, NotFound
from encrypted_records.model import ids
from encrypted_records.server import sql
from encrypted_records.server.accounts.models import User, of_address
from encrypted_records.server.datasets.models import Dataset, Reach, Schema
from encrypted_records.server.db.fields import as_stored
from encrypted_records.server.db.statements import ModelColumns, Statement
from encrypted_records.server.organizations.models import Invitation, Membership, Organization

M = TypeVar("M", bound=Model)

#: Columns of schemas with their datasets, for search. Other columns are deferred: a definition may
#: be long.
_DATA = {
    "s": ModelColumns(
        Schema, ["id", "dataset_id", "definition_digest", "version", "key_id", "live_rows"]
    ),
    "d": ModelColumns(Dataset, ["id", "organization_id"]),
}
#: The same with their organizations, for commits, without the definition for display.
WHOLE = {
    "s": ModelColumns(
        Schema, [field.attname for field in Schema._meta.fields if field.name != "definition"]
    ),
    "d": ModelColumns(Dataset),
    "o": ModelColumns(Organization),
}
_reached = Statement(sql.REACHED, _DATA)
_reached_whole = Statement(sql.REACHED_WHOLE, WHOLE)


def _reach_of(user: User) -> QuerySet[Reach]:
    return Reach.objects.filter(member=user.pk)


def schema_of(row: Sequence[Any]) -> Schema:
    """The schema from a row that begins with the columns of schema, dataset and perhaps
    organization.
    """
    schema: Schema = row[0]
    schema.dataset = row[1]
    if len(row) > 2:
        schema.dataset.organization = row[2]
    return schema


def organizations(user: User) -> QuerySet[Organization]:
    reached = Organization.objects.filter(memberships__user=user)
    named = token_limit(user)
    if named is not None:
        reached = reached.filter(pk__in=named.values("organization_id"))
    return reached.order_by("pk")


def token_limit(user: User) -> QuerySet[Dataset] | None:
    """The datasets that the user's API token is limited to; None if there is no token or no
    limit.
    """
    token = user.acting
    return token.datasets.all() if token is not None and token.limited else None


def find_owned(user: User, organization_id: str) -> Organization:
    """An organization by its id, for operations that only owners may do.

    Raises:
        NotFound: the user cannot reach it.
        NotAllowed: the user is a member only.
    """
    organization = find(organizations(user), organization_id)
    require_owner(user, organization)
    return organization


def members(user: User, organization_id: str) -> QuerySet[Membership]:
    """The memberships of an organization, for its members.

    Raises:
        NotFound: the user cannot reach it.
    """
    organization = find(organizations(user), organization_id)
    reached = organization.memberships.select_related("user", "organization")
    return reached.order_by("user_id")


def invitations(user: User) -> QuerySet[Invitation]:
    """Open invitations to the user's verified address."""
    waiting = of_address(Invitation.objects.filter(expires__gt=timezone.now()), user.email)
    return waiting.select_related("organization", "invited_by").order_by("pk")


def organization_of_roster(user: User, organization_id: str) -> Organization:
    """The organization of a roster, for its members and users it invites; callers check that the
    invitation is this organization's. An API token that is limited to some datasets reads the
    roster of their organizations, restricted to these datasets.

    Raises:
        NotFound: the user cannot reach it.
    """
    if token_limit(user) is not None:
        return find(organizations(user), organization_id)
    inviting = invitations(user).values("organization")
    return find(
        Organization.objects.filter(Q(memberships__user=user) | Q(pk__in=inviting)).distinct(),
        organization_id,
    )


def datasets(user: User) -> QuerySet[Dataset]:
    """The datasets that the user can reach, also those of which only a schema is reached."""
    reached = Dataset.objects.filter(pk__in=_reach_of(user).values("dataset"))
    named = token_limit(user)
    if named is not None:
        reached = reached.filter(pk__in=named.values("pk"))
    return reached.order_by("pk")


def schemas(user: User) -> QuerySet[Schema]:
    """The schemas that the user can reach, with their datasets, which name the organizations."""
    # First by their datasets, for which databases have an index.
    reached = Schema.objects.filter(
        Exists(_reach_of(user).filter(_of_schema(OuterRef("pk"), OuterRef("dataset_id")))),
        dataset__in=_reach_of(user).values("dataset"),
    )
    named = token_limit(user)
    if named is not None:
        reached = reached.filter(dataset__in=named.values("pk"))
    return reached.select_related("dataset").order_by("pk")


def _of_schema(schema: Any, dataset: Any) -> Q:
    return Q(dataset=dataset) & (Q(schema=None) | Q(schema=schema))


def data_of(user: User, schema_id: str) -> Schema:
    """A schema for a user who reads its stored data; without the definition.

    Raises:
        NotFound: the user cannot reach it.
    """
    row = _reached.row(schema=as_stored(schema_id), member=as_stored(user.pk))
    return _within_limit(user, row)


def to_store_into(user: User, schema_id: str) -> tuple[Schema, bool]:
    """A schema with its organization, for a user who wants to write to it, and whether the user
    may; pass that to :func:`require_written`.

    Raises:
        NotFound: the user cannot reach it.
    """
    row = _reached_whole.row(schema=as_stored(schema_id), member=as_stored(user.pk))
    return _within_limit(user, row and row[:3]), bool(row and row[3])


def _within_limit(user: User, row: Sequence[Any] | None) -> Schema:
    """The schema of a row, unless the user's token is limited to other datasets."""
    if row is None:
        raise unreachable()
    schema = schema_of(row)
    named = token_limit(user)
    if named is not None and not named.filter(pk=schema.dataset_id).exists():
        raise unreachable()
    return schema


def find(reachable: QuerySet[M], identifier: str, *, by: str = "pk") -> M:
    """The resource with this id, or with this value in the column ``by``.

    Raises:
        NotFound: the user cannot reach it.
    """
    try:
        resource = reachable.filter(**{by: ids.from_text(identifier)}).first()
    except Malformed:
        resource = None
    if resource is None:
        raise unreachable()
    return resource


def find_by_slug(reachable: QuerySet[M], slug: str) -> M:
    """The resource with this slug, which is unique within ``reachable``.

    Raises:
        NotFound: the user cannot reach it.
    """
    resource = None if "\0" in slug else reachable.filter(slug=slug).first()
    if resource is None:
        raise unreachable()
    return resource


def unreachable() -> NotFound:
    return NotFound("this does not exist, or you cannot reach it")


def require_deleter(user: User, organization: str, *made: Dataset | Schema) -> None:
    """Check that the user created the deleted resources, or is an owner.

    Args:
        organization: the id of their organization.
        made: the deleted resources, including their content.

    Raises:
        NotAllowed: the user is a member only, and has not created all of them.
    """
    if any(record.creator_id != user.pk for record in made) and not owns(user, organization):
        raise NotAllowed(
            "only owners of the organization can delete what others created",
            code="owners_only",
            hint="ask an owner, or the member who created it",
        )


def owns(user: User, organization: str) -> bool:
    """Whether the user is an owner of the organization with this id, at the API."""
    owned = Membership.objects.filter(
        user=user, organization=organization, role=Membership.Role.OWNER
    )
    return owned.exists()


def require_owner(user: User, organization: Organization) -> None:
    """
    Raises:
        NotAllowed: the user is a member only.
    """
    if not owns(user, organization.pk):
        raise _owners_only()


def require_writer(user: User, schema: Schema) -> None:
    """Require the right to write to a schema, for a user who can read it.

    Raises:
        NotAllowed: ``not_writer``; the user may only read the schema.
        NotFound: the schema was deleted meanwhile.
    """
    rights = _reach_of(user).filter(_of_schema(schema.pk, schema.dataset_id), writes=True)
    require_written(schema, rights.exists())


def require_written(schema: Schema, is_written: bool) -> None:
    """Check that the user may write to the schema, from the result of the view of rights; see
    :func:`require_writer`.

    Raises:
        NotAllowed, NotFound: as :func:`require_writer`.
    """
    if not is_written:
        if not Schema.objects.filter(pk=schema.pk).exists():
            raise NotFound("there is no such schema, or none that you can reach")
        raise _not_writer()


def require_writer_of_all(user: User, dataset: Dataset) -> None:
    """Require the right to write to a whole dataset, with any future schema.

    Raises:
        NotAllowed: ``not_writer``.
    """
    if not _reach_of(user).filter(dataset=dataset.pk, schema=None, writes=True).exists():
        raise _not_writer()


def require_owner_where_signed(user: User, organization: Organization) -> None:
    """Check that the user is an owner if there is a roster, otherwise a member.

    Raises:
        NotAllowed: ``owners_only``.
    """
    members = Membership.objects.filter(user=user, organization=organization, all_data=True)
    if organization.has_roster and not members.exists():
        raise _owners_only()


def _not_writer() -> NotAllowed:
    return NotAllowed(
        "you can read here, but not write",
        code="not_writer",
        hint="an owner of the organization can make you a writer",
    )


def _owners_only() -> NotAllowed:
    return NotAllowed("only owners of the organization may do this", code="owners_only")
