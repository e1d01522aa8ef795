"""Rights of a user: the one place that decides them.

Whatever belongs to an organization is reached through a membership; what is not reached does not
exist, so a stranger's and a missing resource get the same answer. Members of an organization
without a roster reach all of it. Where there is one, owners do, and everybody else reaches the
datasets and schemas that it shares with them, and stores into those that it lets them write. A view
of the database says so (:data:`.sql.REACH`), and every statement asks it.

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

#: Schemas with their datasets as a search needs them. The rest is read when it is asked for: a
#: definition may be long.
_DATA = {
    "s": ModelColumns(
        Schema, ["id", "dataset_id", "definition_digest", "version", "key_id", "live_rows"]
    ),
    "d": ModelColumns(Dataset, ["id", "organization_id"]),
}
#: And with their organizations, as a commit needs them, without the definition as it is shown.
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
    """The schema of a row that begins with a schema, its dataset, and perhaps its organization."""
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
    """Open invitations to the user's verified address."""
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
    reached = Dataset.objects.filter(pk__in=_reach_of(user).values("dataset"))
    named = token_limit(user)
    if named is not None:
        reached = reached.filter(pk__in=named.values("pk"))
    return reached.order_by("pk")


def schemas(user: User) -> QuerySet[Schema]:
    """With their datasets, since a schema names its organization through it."""
    # By their datasets first: databases find these by an index.
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
    """A schema for anyone who reads what is stored under it: the definition is not read with it.

    Raises:
        NotFound: the user reaches no such thing.
    """
    row = _reached.row(schema=as_stored(schema_id), member=as_stored(user.pk))
    return _within_limit(user, row)


def to_store_into(user: User, schema_id: str) -> tuple[Schema, bool]:
    """The same for anyone who would store something, with its organization; and whether the user
    may, which is for :func:`require_written`.

    Raises:
        NotFound: the user reaches no such thing.
    """
    row = _reached_whole.row(schema=as_stored(schema_id), member=as_stored(user.pk))
    return _within_limit(user, row and row[:3]), bool(row and row[3])


def _within_limit(user: User, row: Sequence[Any] | None) -> Schema:
    """The schema of a row, unless the user's token is limited to other datasets."""
    if row is None:
        raise _unreachable()
    schema = schema_of(row)
    named = token_limit(user)
    if named is not None and not named.filter(pk=schema.dataset_id).exists():
        raise _unreachable()
    return schema


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
    return NotFound("this does not exist, or you cannot reach it")


def require_deleter(user: User, organization: str, *made: Dataset | Schema) -> None:
    """Check that the user made what is deleted, or is an owner.

    Args:
        organization: the id of the one that they belong to.
        made: whatever is deleted, with what is in it.

    Raises:
        NotAllowed: the user is a member only, and has not made all of it.
    """
    if any(record.creator_id != user.pk for record in made) and not owns(user, organization):
        raise NotAllowed(
            "only owners of the organization can delete what others created",
            code="owners_only",
            hint="ask an owner, or the member who created it",
        )


def owns(user: User, organization: str) -> bool:
    """Whether the user is an owner of the organization of that id, at the API."""
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
    """Require the right to store into a schema, for a user who can read it.

    Raises:
        NotAllowed: ``not_writer``; the user may only read the schema.
        NotFound: the schema was deleted meanwhile.
    """
    here = _reach_of(user).filter(_of_schema(schema.pk, schema.dataset_id), writes=True)
    require_written(schema, here.exists())


def require_written(schema: Schema, is_written: bool) -> None:
    """Check that the user writes the schema, by the answer of the view of rights; see
    :func:`require_writer`.

    Raises:
        NotAllowed, NotFound: as :func:`require_writer`.
    """
    if not is_written:
        if not Schema.objects.filter(pk=schema.pk).exists():
            raise NotFound("there is no such schema, or none that you can reach")
        raise _not_writer()


def require_writer_of_all(user: User, dataset: Dataset) -> None:
    """The same of a dataset and whatever schema it may get.

    Raises:
        NotAllowed: ``not_writer``.
    """
    if not _reach_of(user).filter(dataset=dataset.pk, schema=None, writes=True).exists():
        raise _not_writer()


def require_owner_where_signed(user: User, organization: Organization) -> None:
    """Check that the user is an owner once there is a roster, or a member before.

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
