"""Organizations and who belongs to them."""

from __future__ import annotations

import secrets

from django.conf import settings
from django.db import models

from encrypted_records.model import ids
from encrypted_records.server.fields import ShortIdField, new_id
from encrypted_records.server.slugs import MAX_SLUG, slug_of


class Organization(models.Model):
    id = ShortIdField(primary_key=True, default=new_id, editable=False)
    name = models.CharField(max_length=200)
    slug = models.SlugField(max_length=MAX_SLUG, unique=True)
    created = models.DateTimeField(auto_now_add=True)
    modified = models.DateTimeField(auto_now=True)

    @property
    def url(self) -> str:
        return ids.reference("organizations", self.id)


def found_organization(name: str, owner_id: str) -> Organization:
    """Make an organization that the user owns.

    Its slug ends in random digits: a counter would tell that somebody else has the name.
    """
    organization = Organization.objects.create(
        name=name, slug=f"{slug_of(name, 'organization')}-{secrets.token_hex(4)}"
    )
    Membership.objects.create(
        organization=organization, user_id=owner_id, role=Membership.Role.OWNER
    )
    return organization


class Membership(models.Model):
    class Role(models.TextChoices):
        OWNER = "owner"
        MEMBER = "member"

    organization = models.ForeignKey(
        Organization, on_delete=models.CASCADE, related_name="memberships"
    )
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships"
    )
    role = models.CharField(max_length=10, choices=Role.choices, default=Role.MEMBER)
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint("organization", "user", name="membership_once_per_user")
        ]
