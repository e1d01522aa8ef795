"""What a user may reach: the one place that decides it.

Whatever belongs to an organization is reached through a membership; what is not reached does not
exist, so a stranger's and a missing resource get the same answer. Members of an organization
without a roster reach all of it. Where there is one, owners do, and everybody else reaches the
datasets and schemas that it shares with them, and stores into those that it lets them write.

A user whose request came with an API token that is limited to some datasets reaches no others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from django.db import connection
from django.db.models import Exists, Model, OuterRef, Q, QuerySet
from django.utils import timezone

from encrypted_records.errors import Malformed, NotAllowed, NotFound
from encrypted_records.model import ids
from encrypted_records.server.accounts.models import User, of_address
from encrypted_records.server.datasets import rows
from encrypted_records.server.datasets.models import Dataset, Schema
from encrypted_records.server.db.compiled_queries import Prepared
from encrypted_records.server.db.fields import as_stored
from encrypted_records.server.organizations.models import (
    Invitation,
    Membership,
    Organization,
)
from encrypted_records.server.organizations.roster_tables import Shared

M = TypeVar("M", bound=Model)

DATASET = ["id", "organization_id"]
#: What a search needs. The rest is read when it is asked for: a definition may be long.
DATA = ["id", "dataset_id", "definition_digest", "version", "key_id", "live_rows"]
MEMBERS = "dataset__organization__memberships"


def shared(**more: object) -> Q:
    """Of schemas joined with a membership: whether the member reaches all, or this one."""
    member = OuterRef(f"{MEMBERS}__user_id")
    with_member = grants(OuterRef("pk"), OuterRef("dataset_id"), member).filter(**more)
    return Q(**{f"{MEMBERS}__all_data": True}) | Q(Exists(with_member))


def grants(schema: Any, dataset: Any, member: Any) -> QuerySet[Shared]:
    """What of a schema is shared with a member: its dataset, or the schema alone."""
    return Shared.objects.filter(Q(schema=None) | Q(schema=schema), member=member, dataset=dataset)


_reached = Prepared(
    lambda: Schema.objects.filter(shared(), **{f"{MEMBERS}__user__isnull": False}).values_list(
        *DATA, *(f"dataset__{name}" for name in DATASET)
    ),
    "datasets_schema.id",
    "organizations_membership.user_id",
)
_reached_whole = Prepared(
    lambda: Schema.objects.filter(shared(), **{f"{MEMBERS}__user__isnull": False}).values_list(
        *rows.COLUMNS
    ),
    "datasets_schema.id",
    "organizations_membership.user_id",
)
#: Of a schema and a user who may store into it, where the organization has a roster.
written = Prepared(
    lambda: Schema.objects.filter(
        shared(writes=True), **{f"{MEMBERS}__user__isnull": False}
    ).values_list("id"),
    "datasets_schema.id",
    "organizations_membership.user_id",
)


def organizations(user: User) -> QuerySet[Organization]:
    reached = Organization.objects.filter(memberships__user=user)
    named = token_limit(user)
    if named is not None:
        reached = reached.filter(pk__in=named.values("organization_id"))
    return reached.order_by("pk")


def token_limit(user: User) -> QuerySet[Dataset] | None:
    """The datasets that the user's API token is limited to; None where it is not, or there is
    none."""
    token = user.acting
    return token.datasets.all() if token is not None and token.limited else None


def find_owned(user: User, organization_id: str) -> Organization:
    """The organization of that id, for what only its owners may do.

    Raises:
        NotFound: the user reaches no such thing.
        NotAllowed: the user is a member only.
    """
    organization = find(organizations(user), organization_id)
    require_owner(user, organization)
    return organization


def members(user: User, organization_id: str) -> QuerySet[Membership]:
    """The memberships of an organization, for its members.

    Raises:
        NotFound: the user reaches no such thing.
    """
    organization = find(organizations(user), organization_id)
    reached = organization.memberships.select_related("user", "organization")
    return reached.order_by("user_id")


def invitations(user: User) -> QuerySet[Invitation]:
    """Those that wait for the user's address, which was verified."""
    waiting = of_address(Invitation.objects.filter(expires__gt=timezone.now()), user.email)
    return waiting.select_related("organization", "invited_by").order_by("pk")


def organization_of_roster(user: User, organization_id: str) -> Organization:
    """For its members, and for those it invites, who check that it is the inviter's. An API token
    that is limited to some datasets reads the roster of their organizations, cut to these.

    Raises:
        NotFound: the user reaches no such thing.
    """
    if token_limit(user) is not None:
        return find(organizations(user), organization_id)
    inviting = invitations(user).values("organization")
    return find(
        Organization.objects.filter(Q(memberships__user=user) | Q(pk__in=inviting)).distinct(),
        organization_id,
    )


def datasets(user: User) -> QuerySet[Dataset]:
    """Also those of which a single schema is reached."""
    shared = Shared.objects.filter(
        member=OuterRef("organization__memberships__user_id"), dataset=OuterRef("pk")
    )
    reached = Dataset.objects.filter(
        Q(organization__memberships__all_data=True) | Q(Exists(shared)),
        organization__memberships__user=user,
    )
    named = token_limit(user)
    if named is not None:
        reached = reached.filter(pk__in=named.values("pk"))
    return reached.order_by("pk")


def schemas(user: User) -> QuerySet[Schema]:
    """With their datasets, since a schema names its organization through it."""
    reached = Schema.objects.filter(shared(), **{f"{MEMBERS}__user": user})
    named = token_limit(user)
    if named is not None:
        reached = reached.filter(dataset__in=named.values("pk"))
    return reached.select_related("dataset").order_by("pk")


def data_of(user: User, schema_id: str) -> Schema:
    """A schema for anyone who reads what is stored under it: the definition is not read with it.

    Raises:
        NotFound: the user reaches no such thing.
    """
    for row in _reached.rows(as_stored(schema_id), as_stored(user.pk)):
        schema = as_data(row)
        if _is_within_limit(user, schema):
            return schema
    raise _unreachable()


def as_data(row: Sequence[Any]) -> Schema:
    end = len(DATA) + len(DATASET)
    schema = Schema.from_db(connection.alias, DATA, row[: len(DATA)])
    schema.dataset = Dataset.from_db(connection.alias, DATASET, row[len(DATA) : end])
    return schema


def to_store_into(user: User, schema_id: str) -> Schema | None:
    """The same for anyone who would store something, with its organization; None where the user
    reaches no such thing. Whether the user may is for :func:`require_writer`."""
    for row in _reached_whole.rows(as_stored(schema_id), as_stored(user.pk)):
        schema = rows.schema_of(row)
        if _is_within_limit(user, schema):
            return schema
    return None


def _is_within_limit(user: User, schema: Schema) -> bool:
    named = token_limit(user)
    return named is None or named.filter(pk=schema.dataset_id).exists()


def find(reachable: QuerySet[M], identifier: str, *, by: str = "pk") -> M:
    """The resource of that id, or of which another column is that id.

    Raises:
        NotFound: the user reaches no such thing.
    """
    try:
        resource = reachable.filter(**{by: ids.from_text(identifier)}).first()
    except Malformed:
        resource = None
    if resource is None:
        raise _unreachable()
    return resource


def find_by_slug(reachable: QuerySet[M], slug: str) -> M:
    """The resource of that slug, which is one at most in what is reachable.

    Raises:
        NotFound: the user reaches no such thing.
    """
    resource = None if "\0" in slug else reachable.filter(slug=slug).first()
    if resource is None:
        raise _unreachable()
    return resource


def _unreachable() -> NotFound:
    return NotFound("there is nothing here, or nothing that you can reach")


def require_deleter(user: User, organization: str, *made: Dataset | Schema) -> None:
    """What members made is deleted by them, or by owners.

    Args:
        organization: the id of the one that they belong to.
        made: whatever is deleted, with what is in it.

    Raises:
        NotAllowed: the user is a member only, and has not made all of it.
    """
    if any(one.creator_id != user.pk for one in made) and not _owns(user, organization):
        raise NotAllowed(
            "only owners of the organization may delete what others made",
            code="owners_only",
            hint="ask an owner, or the one who made it",
        )


def _owns(user: User, organization: str) -> bool:
    owned = Membership.objects.filter(
        user=user, organization=organization, role=Membership.Role.OWNER
    )
    return owned.exists()


def require_owner(user: User, organization: Organization) -> None:
    """
    Raises:
        NotAllowed: the user is a member only.
    """
    if not _owns(user, organization.pk):
        raise _owners_only()


def require_writer(user: User, schema: Schema) -> None:
    """For somebody who reaches a schema, to store into it. Where there is no roster, all may.

    Raises:
        NotAllowed: ``not_writer``; the user may read the schema at most.
        NotFound: it was deleted meanwhile, and nobody may write what is not there.
    """
    if schema.dataset.organization.has_roster:
        require_written(schema, bool(written.rows(as_stored(schema.pk), as_stored(user.pk))))


def require_written(schema: Schema, is_written: bool) -> None:
    """As :func:`require_writer`, of one for whom :data:`written` was asked.

    Raises:
        NotAllowed, NotFound: as :func:`require_writer`.
    """
    if not is_written and schema.dataset.organization.has_roster:
        if not Schema.objects.filter(pk=schema.pk).exists():
            raise NotFound("there is no such schema, or none that you can reach")
        raise _not_writer()


def require_writer_of_all(user: User, dataset: Dataset) -> None:
    """The same of a dataset and whatever schema it may get.

    Raises:
        NotAllowed: ``not_writer``.
    """
    here = Shared.objects.filter(member=user.pk, dataset=dataset.pk, schema=None, writes=True)
    if not (_reaches_all(user, dataset.organization) or here.exists()):
        raise _not_writer()


def require_owner_where_signed(user: User, organization: Organization) -> None:
    """What only owners do once there is a roster, and every member before.

    Raises:
        NotAllowed: ``owners_only``.
    """
    if organization.has_roster and not _reaches_all(user, organization):
        raise _owners_only()


def _reaches_all(user: User, organization: Organization) -> bool:
    return Membership.objects.filter(user=user, organization=organization, all_data=True).exists()


def _not_writer() -> NotAllowed:
    return NotAllowed(
        "you may read here, and not write",
        code="not_writer",
        hint="an owner of the organization can make you a writer",
    )


def _owners_only() -> NotAllowed:
    return NotAllowed("only owners of the organization may do this", code="owners_only")
