"""Organizations: list, read, rename; their members, invitations and audit log.

Members see each other. Only owners invite, change and remove, and read the audit log; but every
member may leave.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from typing import Any, cast

from django.db import transaction
from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import generics, mixins, serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from encrypted_records.errors import Conflict, NotFound
from encrypted_records.model import ids
from encrypted_records.server import permissions
from encrypted_records.server.accounts import limits
from encrypted_records.server.accounts.api_tokens import READS, READS_ALL
from encrypted_records.server.accounts.models import User
from encrypted_records.server.db.fields import identifier
from encrypted_records.server.http.openapi import BY_ID, BY_SLUG
from encrypted_records.server.http.parameters import KnownMembers, TextField, invalid_parameter
from encrypted_records.server.organizations import audit, members, roster_members
from encrypted_records.server.organizations.audit import Action
from encrypted_records.server.organizations.models import (
    AuditEntry,
    Invitation,
    Membership,
    Organization,
    create_organization,
)


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
        # A removed user does not learn who did it.
        if instance.action == "member.removed" and instance.subject == asking.url:
            shown |= {"source": "", "request_id": ""}
        return shown


@BY_ID
class OrganizationsView(
    mixins.CreateModelMixin,
    mixins.ListModelMixin,
    mixins.RetrieveModelMixin,
    mixins.UpdateModelMixin,
    viewsets.GenericViewSet[Organization],
):
    """A user who belongs to none founds one, at registration or later. Its owners may rename it;
    the slug stays."""

    serializer_class = OrganizationSerializer
    queryset = Organization.objects.none()
    token_uses = READS

    @property
    def user(self) -> User:
        return cast(User, self.request.user)

    def get_queryset(self) -> QuerySet[Organization]:
        return permissions.organizations(self.user)

    def get_object(self) -> Organization:
        return permissions.find(self.get_queryset(), self.kwargs["pk"])

    @extend_schema(parameters=[BY_SLUG])
    @action(detail=False, url_path="by-slug/(?P<slug>[^/]+)")
    def by_slug(self, request: Request, slug: str) -> Response:
        """The same by its slug."""
        return Response(
            self.get_serializer(permissions.find_by_slug(self.get_queryset(), slug)).data
        )

    def perform_create(self, serializer: serializers.BaseSerializer[Any]) -> None:
        """
        Raises:
            Conflict: ``already_member``.
        """
        limits.throttle("register")
        with transaction.atomic():
            # Locks the account, so that two concurrent requests of a user create only one
            # organization.
            members.require_existing(self.user.pk)
            if self.user.memberships.exists():
                raise Conflict(
                    "this account already belongs to an organization", code="already_member"
                )
            name = cast(dict[str, Any], serializer.validated_data)["name"]
            serializer.instance = create_organization(name, self.user.pk)

    def perform_update(self, serializer: serializers.BaseSerializer[Any]) -> None:
        organization = cast(Organization, serializer.instance)
        permissions.require_owner(self.user, organization)
        with transaction.atomic():
            serializer.save()
            audit.note(self.user, Action.ORGANIZATION_CHANGED, organization.pk, organization.url)


def _user(request: Request) -> User:
    return cast(User, request.user)


class MembersView(generics.ListAPIView[Membership]):
    """The members of an organization, for each of them."""

    serializer_class = MemberSerializer
    queryset = Membership.objects.none()
    token_uses = READS_ALL

    def get_queryset(self) -> QuerySet[Membership]:
        return permissions.members(_user(self.request), self.kwargs["organization_id"])


class MemberDetail(APIView):
    @extend_schema(request=MemberSerializer, responses=MemberSerializer)
    def patch(self, request: Request, organization_id: str, user_id: str) -> Response:
        """Change a member's role."""
        user = _user(request)
        membership = self._find(user, organization_id, user_id)
        permissions.require_owner(user, membership.organization)
        wanted = MemberSerializer(membership, data=request.data, partial=True)
        wanted.is_valid(raise_exception=True)
        if "role" in wanted.validated_data:
            members.change_role(user, membership, wanted.validated_data["role"])
        return Response(MemberSerializer(membership).data)

    @extend_schema(responses={204: None})
    def delete(self, request: Request, organization_id: str, user_id: str) -> Response:
        """Remove a member, or leave."""
        user = _user(request)
        membership = self._find(user, organization_id, user_id)
        if membership.user_id != user.pk:
            permissions.require_owner(user, membership.organization)
        members.remove(user, membership)
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _find(self, user: User, organization_id: str, user_id: str) -> Membership:
        return permissions.find(permissions.members(user, organization_id), user_id, by="user_id")


class Invitations(generics.ListAPIView[Invitation]):
    """Whom an organization has invited, for its owners."""

    token_uses = READS_ALL
    serializer_class = InvitationSerializer
    queryset = Invitation.objects.none()

    def get_queryset(self) -> QuerySet[Invitation]:
        owned = permissions.find_owned(_user(self.request), self.kwargs["organization_id"])
        reached = owned.invitations.select_related("organization", "invited_by")
        return reached.order_by("pk")

    @extend_schema(request=InvitationSerializer, responses={201: InvitationSerializer})
    def post(self, request: Request, organization_id: str) -> Response:
        """Invite an address, by a message. The answer does not show whether it has an account."""
        user = _user(request)
        organization = permissions.find_owned(user, organization_id)
        limits.throttle("invite")
        wanted = InvitationSerializer(data=request.data)
        wanted.is_valid(raise_exception=True)
        made = members.invite(user, organization, **wanted.validated_data)
        return Response(InvitationSerializer(made).data, status=status.HTTP_201_CREATED)


class InvitationDetail(APIView):
    @extend_schema(responses={204: None})
    def delete(self, request: Request, organization_id: str, invitation_id: str) -> Response:
        """Withdraw an invitation."""
        user = _user(request)
        owned = permissions.find_owned(user, organization_id)
        invitation = permissions.find(owned.invitations.all(), invitation_id)
        members.withdraw(user, invitation)
        return Response(status=status.HTTP_204_NO_CONTENT)


class OwnInvitations(generics.ListAPIView[Invitation]):
    """The caller's own."""

    token_uses = READS_ALL
    serializer_class = InvitationSerializer
    queryset = Invitation.objects.none()

    def get_queryset(self) -> QuerySet[Invitation]:
        return permissions.invitations(_user(self.request))


class OwnInvitation(APIView):
    @extend_schema(responses={204: None})
    def delete(self, request: Request, invitation_id: str) -> Response:
        """Decline it."""
        user = _user(request)
        roster_members.decline_invitation(
            permissions.find(permissions.invitations(user), invitation_id)
        )
        return Response(status=status.HTTP_204_NO_CONTENT)


class AcceptInvitation(APIView):
    @extend_schema(request=None, responses={201: MemberSerializer})
    def post(self, request: Request, invitation_id: str) -> Response:
        """Become a member."""
        user = _user(request)
        invitation = permissions.find(permissions.invitations(user), invitation_id)
        joined = members.accept(user, invitation)
        return Response(MemberSerializer(joined).data, status=status.HTTP_201_CREATED)


class AuditLogView(generics.ListAPIView[AuditEntry]):
    """Actions in an organization, the newest first, for owners; for somebody who was removed, their
    removal alone, without addresses."""

    token_uses = READS_ALL
    serializer_class = AuditEntrySerializer
    queryset = AuditEntry.objects.none()

    @extend_schema(
        parameters=[
            OpenApiParameter("action", str, enum=list(Action)),
            OpenApiParameter("without", str, enum=list(Action)),
            OpenApiParameter("user", str),
            OpenApiParameter("until", OpenApiTypes.DATE),
        ]
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)

    def get_queryset(self) -> QuerySet[AuditEntry]:
        caller, organization_id = _user(self.request), self.kwargs["organization_id"]
        entries = AuditEntry.objects.select_related("user").order_by("-pk")
        try:
            entries = entries.filter(organization=permissions.find_owned(caller, organization_id))
        except NotFound:
            entries = entries.filter(subject=caller.url, action=Action.MEMBER_REMOVED)
            entries = entries.exclude(user=caller)  # users who left by themselves do not see it
            permissions.find(entries, organization_id, by="organization_id")
            entries = entries.filter(organization_id=ids.from_text(organization_id))
        query = self.request.query_params
        if "action" in query:
            entries = entries.filter(action=_known("action", query["action"]))
        if "without" in query:
            entries = entries.exclude(action=_known("without", query["without"]))
        if "user" in query:
            user = identifier(self.request, query["user"], "users", parameter="user")
            entries = entries.filter(user=user)
        if "until" in query:
            entries = entries.filter(created__lte=_end_of_day(query["until"]))
        return entries


def _known(name: str, action: str) -> Action:
    try:
        return Action(action)
    except ValueError:
        raise invalid_parameter(name, f"expected one of {', '.join(Action)}") from None


def _end_of_day(text: str) -> datetime:
    """The last moment of the day, in UTC."""
    try:
        return datetime.combine(date.fromisoformat(text), time.max, UTC)
    except ValueError:
        raise invalid_parameter("until", "expected a day, such as 2026-01-31") from None
