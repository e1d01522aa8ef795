"""Organizations and what belongs to them, as responses show them."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from encrypted_records.model import ids
from encrypted_records.server.http.parameters import KnownMembers, TextField
from encrypted_records.server.organizations.models import (
    AuditEntry,
    Invitation,
    Membership,
    Organization,
)
from encrypted_records.server.organizations.roster_tables import Service


class OrganizationSerializer(KnownMembers, serializers.ModelSerializer[Organization]):
    id = serializers.CharField(read_only=True)
    name = TextField(max_length=200)

    class Meta:
        model = Organization
        fields = ["id", "url", "name", "slug", "created", "modified"]
        read_only_fields = ["id", "url", "slug", "created", "modified"]


class _Belonging(KnownMembers, serializers.ModelSerializer[Any]):
    organization = serializers.SerializerMethodField()

    def get_organization(self, row: Any) -> str:
        return ids.reference("organizations", row.organization_id)


class MemberSerializer(_Belonging):
    url = serializers.SerializerMethodField()
    user = serializers.CharField(source="user.url", read_only=True)
    email = serializers.EmailField(source="user.email", read_only=True)
    first_name = serializers.CharField(source="user.first_name", read_only=True)
    last_name = serializers.CharField(source="user.last_name", read_only=True)
    role = serializers.ChoiceField(Membership.Role.choices)

    class Meta:
        model = Membership
        fields = [
            *("url", "organization", "user", "email", "first_name", "last_name"),
            *("role", "created"),
        ]
        read_only_fields = ["created"]

    def get_url(self, membership: Membership) -> str:
        organization = ids.reference("organizations", membership.organization_id)
        return f"{organization}members/{membership.user_id}/"


class InvitationSerializer(_Belonging):
    id = serializers.CharField(read_only=True)
    organization_name = serializers.CharField(source="organization.name", read_only=True)
    email = serializers.EmailField(max_length=254)
    role = serializers.ChoiceField(Membership.Role.choices, default=Membership.Role.MEMBER)
    invited_by = serializers.EmailField(source="invited_by.email", read_only=True)

    class Meta:
        model = Invitation
        fields = [
            *("id", "organization", "organization_name", "email", "role", "invited_by"),
            *("created", "expires"),
        ]
        read_only_fields = ["created", "expires"]
        validators: list[Any] = []


class ServiceSerializer(KnownMembers, serializers.Serializer[Service]):
    id = serializers.RegexField(rf"^{ids.PATTERN}\Z", source="pk")
    name = TextField(max_length=150, source="user.first_name")
    token_digest = serializers.RegexField(r"^[0-9a-f]{64}\Z", write_only=True)
    expires = serializers.DateTimeField(allow_null=True, default=None)
    created = serializers.DateTimeField(read_only=True)
    last_used = serializers.DateTimeField(read_only=True, allow_null=True)


class AuditEntrySerializer(serializers.ModelSerializer[AuditEntry]):
    id = serializers.CharField(read_only=True)
    user = serializers.CharField(source="user.url", allow_null=True, default=None)
    email = serializers.EmailField(source="user.email", allow_null=True, default=None)

    class Meta:
        model = AuditEntry
        fields = ["id", "created", "user", "email", "action", "subject", "source", "request_id"]

    def to_representation(self, instance: AuditEntry) -> dict[str, Any]:
        shown: dict[str, Any] = super().to_representation(instance)
        if instance.user is not None and instance.user.deleted is not None:
            shown["email"] = None
        asking = self.context["request"].user
        # From where somebody was removed, they are not told.
        if instance.action == "member.removed" and instance.subject == asking.url:
            shown |= {"source": "", "request_id": ""}
        return shown
