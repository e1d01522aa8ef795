"""Organizations, their members, invitations and audit log, and their rosters.

A user becomes a member by accepting an invitation, which is sent to an address. Adding users
directly would reveal whether the address has an account, and no user should become a member without
consent.

A roster is kept as entries that were signed, and what follows from them. The entries and the grants
are kept byte for byte, for proxies, which believe nothing else, and entries are judged by what
those before them add up to (:mod:`.roster_change`). The plain tables are for statements that ask
who belongs, under which keys, and what is shared with whom. Only :mod:`.roster` and what it calls
write them, in the transaction that adds the entry. They name members, datasets and schemas by their
ids, without a foreign key: the roster goes on naming what was deleted.

Requests for access are not entries, and have foreign keys: they are deleted with the membership of
who asked, and with the dataset.
"""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta

from django.conf import settings
from django.db import models
from django.db.models.functions import Lower
from django.utils import timezone

from encrypted_records.model import ids
from encrypted_records.model.roster import NO_DIGEST
from encrypted_records.server.db.fields import (
    MAX_SLUG,
    OptionalIdField,
    ShortIdField,
    new_id,
    slug_of,
)

INVITATION_LIFETIME = timedelta(days=7)


def invitation_end() -> datetime:
    return timezone.now() + INVITATION_LIFETIME


class Organization(models.Model):
    id = ShortIdField(primary_key=True, default=new_id, editable=False)
    name = models.CharField(max_length=200)
    slug = models.SlugField(max_length=MAX_SLUG, unique=True)
    created = models.DateTimeField(auto_now_add=True)
    modified = models.DateTimeField(auto_now=True)

    #: the newest entry of its roster, 0 while it has none; only :mod:`.roster` changes these
    roster_number = models.BigIntegerField(default=0)
    roster_digest = models.BinaryField(max_length=32, default=NO_DIGEST)

    @property
    def url(self) -> str:
        return ids.reference("organizations", self.id)

    @property
    def has_roster(self) -> bool:
        return self.roster_number > 0


def create_organization(name: str, owner_id: str) -> Organization:
    """Make an organization that the user owns.

    Its slug ends in random digits: a counter would reveal that another organization has the name.
    """
    organization = Organization.objects.create(
        name=name, slug=f"{slug_of(name, 'organization')}-{secrets.token_hex(4)}"
    )
    Membership.objects.create(
        organization=organization, user_id=owner_id, role=Membership.Role.OWNER, all_data=True
    )
    return organization


class Membership(models.Model):
    class Role(models.TextChoices):
        OWNER = "owner"
        MEMBER = "member"

    organization = models.ForeignKey(
        Organization, on_delete=models.CASCADE, related_name="memberships", db_index=False
    )
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships"
    )
    role = models.CharField(max_length=10, choices=Role.choices, default=Role.MEMBER)
    #: whether all datasets are reached: by every member where there is no roster, else by owners
    all_data = models.BooleanField(default=False)
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint("organization", "user", name="membership_once_per_user")
        ]


class Invitation(models.Model):
    id = ShortIdField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(
        Organization, on_delete=models.CASCADE, related_name="invitations"
    )
    email = models.EmailField(max_length=254)
    role = models.CharField(max_length=10, choices=Membership.Role.choices)
    invited_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+"
    )
    created = models.DateTimeField(default=timezone.now, editable=False)
    expires = models.DateTimeField(default=invitation_end, editable=False)

    class Meta:
        constraints = [
            models.UniqueConstraint("organization", Lower("email"), name="one_invitation_each")
        ]


class AuditEntry(models.Model):
    """An action in an organization; never a value, a name, a filter or a secret."""

    id = ShortIdField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(
        Organization, on_delete=models.CASCADE, related_name="+", db_index=False
    )
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    action = models.CharField(max_length=40)
    #: the path of what it was done to; it may be gone
    subject = models.CharField(max_length=200)
    source = models.CharField(max_length=50)
    request_id = models.CharField(max_length=64)
    created = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        indexes = [
            models.Index(fields=["organization", "-id"], name="audit_newest_first"),
            models.Index(
                fields=["organization", "subject"],
                condition=models.Q(action="member.removed"),
                name="audit_removals",
            ),
        ]


class Entry(models.Model):
    """An entry of an organization's roster, as signed by its actor."""

    pk = models.CompositePrimaryKey("organization_id", "number")
    organization = models.ForeignKey(
        "Organization", on_delete=models.CASCADE, related_name="entries", db_index=False
    )
    number = models.BigIntegerField()
    digest = models.BinaryField(max_length=32)
    body = models.BinaryField()
    signature = models.BinaryField(max_length=64)
    #: of the names that it states, as a MessagePack array
    openings = models.BinaryField()

    class Meta:
        db_table = "roster_entry"


class Standing(models.Model):
    """The keys of a member, and whether the member owns; of those who are out, what was last."""

    organization = models.ForeignKey(
        "Organization", on_delete=models.CASCADE, related_name="standings", db_index=False
    )
    member = ShortIdField()
    #: whether the member is in
    present = models.BooleanField(default=True)
    is_owner = models.BooleanField()
    keys = models.BinaryField()

    class Meta:
        db_table = "roster_standing"
        constraints = [models.UniqueConstraint("organization", "member", name="standing_once")]


class Shared(models.Model):
    """A right of a member who is not an owner to read, and perhaps write, a dataset or one of its
    schemas.
    """

    organization = models.ForeignKey(
        "Organization", on_delete=models.CASCADE, related_name="shared"
    )
    member = ShortIdField()
    dataset = ShortIdField()
    #: none for the whole dataset
    schema = OptionalIdField()
    writes = models.BooleanField()

    class Meta:
        db_table = "roster_shared"
        indexes = [
            models.Index("member", "dataset", name="shared_with_member"),
            models.Index("organization", "dataset", name="shared_of_dataset"),
        ]


class DatasetKey(models.Model):
    """The newest epoch of a dataset's keys, and whether the roster names the dataset."""

    dataset = ShortIdField(primary_key=True)
    organization = models.ForeignKey(
        "Organization", on_delete=models.CASCADE, related_name="dataset_keys"
    )
    epoch = models.IntegerField()
    #: the oldest epoch that is not forgotten
    first = models.IntegerField(default=1)
    #: whether name and slug are the roster's to change
    placed = models.BooleanField()

    class Meta:
        db_table = "roster_dataset"


class Place(models.Model):
    """The dataset of a schema according to the roster."""

    schema = ShortIdField(primary_key=True)
    organization = models.ForeignKey(
        "Organization", on_delete=models.CASCADE, related_name="places"
    )
    dataset = ShortIdField()
    #: false once the schema's name was freed
    placed = models.BooleanField()

    class Meta:
        db_table = "roster_place"


class Seat(models.Model):
    """An invitation as the roster has it, and what was answered. It stays when it is over, so that
    its id is never used twice."""

    id = ShortIdField(primary_key=True)
    organization = models.ForeignKey("Organization", on_delete=models.CASCADE, related_name="seats")
    #: of the entry
    digest = models.BinaryField(max_length=32)
    #: whom it is for, where that was a member before
    member = OptionalIdField()
    expires = models.BigIntegerField()
    answer_key = models.BinaryField(max_length=32)
    #: nobody answers it or is admitted by it any more
    over = models.BooleanField(default=False)
    #: the frame's payload, while it waits
    answer = models.BinaryField(null=True)

    class Meta:
        db_table = "roster_seat"


class StoredGrant(models.Model):
    """The newest grant of a dataset to a member. It holds every epoch that is not forgotten."""

    organization = models.ForeignKey(
        "Organization", on_delete=models.CASCADE, related_name="grants"
    )
    dataset = ShortIdField()
    member = ShortIdField()
    epoch = models.IntegerField()
    #: the newest entry of the roster that its actor had read
    number = models.BigIntegerField()
    body = models.BinaryField()
    signature = models.BinaryField(max_length=64)

    class Meta:
        db_table = "roster_grant"
        constraints = [
            models.UniqueConstraint("dataset", "member", name="grant_once"),
        ]
        indexes = [models.Index("organization", "member", name="grants_of_member")]


class StoredRequest(models.Model):
    """A request of a member for access to a dataset, as it was signed."""

    membership = models.ForeignKey(
        "Membership", on_delete=models.CASCADE, related_name="requests", db_index=False
    )
    dataset = models.ForeignKey(
        "datasets.Dataset", on_delete=models.CASCADE, related_name="requests"
    )
    body = models.BinaryField()
    signature = models.BinaryField(max_length=64)
    created = models.DateTimeField(default=timezone.now, editable=False)
    #: when an owner declined it
    declined = models.DateTimeField(null=True)

    class Meta:
        db_table = "access_request"
        constraints = [models.UniqueConstraint("membership", "dataset", name="request_once")]


class Service(models.Model):
    """A program that has a standing of its own, and a token instead of a password.

    It is a user, too, so that whatever is stored or noted names it as it names people. Until the
    roster has its standing it reaches nothing, and once that ends, its token goes.
    """

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, primary_key=True, on_delete=models.CASCADE, related_name="service"
    )
    organization = models.ForeignKey(
        "Organization", on_delete=models.CASCADE, related_name="services"
    )
    #: SHA-256 of the token
    digest = models.BinaryField(max_length=32, unique=True)
    expires = models.DateTimeField(null=True)
    created = models.DateTimeField(default=timezone.now, editable=False)
    #: to the minute
    last_used = models.DateTimeField(null=True)

    class Meta:
        db_table = "service"
