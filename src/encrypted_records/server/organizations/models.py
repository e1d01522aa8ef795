"""Organizations, their members, invitations, and audit log.

A user becomes a member by accepting an invitation, which is sent to an address. Adding users
directly would reveal whether the address has an account, and no user should become a member without
consent.
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
from encrypted_records.server.db.fields import MAX_SLUG, ShortIdField, new_id, slug_of

# Django finds tables in this module alone.
from encrypted_records.server.organizations import roster_tables  # noqa: F401

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
