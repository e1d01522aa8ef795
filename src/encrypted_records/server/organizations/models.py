"""Organizations, their members, invitations and audit log, and their rosters.

A user becomes a member by accepting an invitation, which is sent to an address. Adding users
directly would reveal whether the address has an account, and no user should become a member without
consent.

A roster is stored as signed entries and as tables derived from them. Entries and grants are stored
byte for byte, because proxies trust nothing else; new entries are judged by the state after the
previous entries (:mod:`.roster_change`). The derived tables serve queries: who is a member, with
which keys, and what is shared with whom. Only :mod:`.roster` and the modules it calls write them,
in the transaction that adds the entry. They refer to members, datasets and schemas by id, without a
foreign key: the roster still names resources that were deleted.

Requests for access are not entries, and have foreign keys: they are deleted with the member's
membership, and with the dataset.
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

    #: number of the roster's newest entry, 0 without a roster; only :mod:`.roster` changes these
    #: columns
    roster_number = models.BigIntegerField(default=0)
    roster_digest = models.BinaryField(max_length=32, default=NO_DIGEST)

    @property
    def url(self) -> str:
        return ids.reference("organizations", self.id)

    @property
    def has_roster(self) -> bool:
        return self.roster_number > 0


def create_organization(name: str, owner_id: str) -> Organization:
    """Create an organization that the user owns.

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
    #: whether the member reaches all datasets: every member without a roster, otherwise owners
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
    """An action in an organization; without any value, name, filter or secret."""

    id = ShortIdField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(
        Organization, on_delete=models.CASCADE, related_name="+", db_index=False
    )
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    action = models.CharField(max_length=40)
    #: the path of the resource, which may be deleted
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
    """An entry of an organization's roster, as its actor signed it."""

    pk = models.CompositePrimaryKey("organization_id", "number")
    organization = models.ForeignKey(
        "Organization", on_delete=models.CASCADE, related_name="entries", db_index=False
    )
    number = models.BigIntegerField()
    digest = models.BinaryField(max_length=32)
    body = models.BinaryField()
    signature = models.BinaryField(max_length=64)
    #: openings of the names in the entry, as a MessagePack array
    openings = models.BinaryField()

    class Meta:
        db_table = "roster_entry"


class Standing(models.Model):
    """A member's keys, and whether the member is an owner; for a removed member, the last state."""

    organization = models.ForeignKey(
        "Organization", on_delete=models.CASCADE, related_name="standings", db_index=False
    )
    member = ShortIdField()
    #: whether the member is in the roster
    present = models.BooleanField(default=True)
    is_owner = models.BooleanField()
    keys = models.BinaryField()

    class Meta:
        db_table = "roster_standing"
        constraints = [models.UniqueConstraint("organization", "member", name="standing_once")]


class Shared(models.Model):
    """The right of a member who is not an owner to read, and perhaps write, a dataset or one of its
    schemas.
    """

    organization = models.ForeignKey(
        "Organization", on_delete=models.CASCADE, related_name="shared"
    )
    member = ShortIdField()
    dataset = ShortIdField()
    #: null for the whole dataset
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
    #: the oldest epoch that was not forgotten
    first = models.IntegerField(default=1)
    #: whether only the roster can change name and slug
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
    """An invitation in the roster, with its answer. The row stays when the invitation is over, so
    that its id is never reused.
    """

    id = ShortIdField(primary_key=True)
    organization = models.ForeignKey("Organization", on_delete=models.CASCADE, related_name="seats")
    #: digest of the entry
    digest = models.BinaryField(max_length=32)
    #: the invited user, if a member before
    member = OptionalIdField()
    expires = models.BigIntegerField()
    answer_key = models.BinaryField(max_length=32)
    #: the invitation can no longer be answered or used to admit a member
    over = models.BooleanField(default=False)
    #: the payload of the answer's frame, while it waits
    answer = models.BinaryField(null=True)

    class Meta:
        db_table = "roster_seat"


class StoredGrant(models.Model):
    """The newest grant of a dataset to a member. It has every epoch that was not forgotten."""

    organization = models.ForeignKey(
        "Organization", on_delete=models.CASCADE, related_name="grants"
    )
    dataset = ShortIdField()
    member = ShortIdField()
    epoch = models.IntegerField()
    #: the newest entry of the roster that the grant's actor had read
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
    """A member's signed request for access to a dataset."""

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
    """A program with a standing of its own, and a token instead of a password.

    It is a user, too, so that stored data and audit entries name it like a person. Before the
    roster has its standing it reaches nothing; when its standing ends, its token is deleted.
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
