"""Endpoints of organizations: their members, invitations, audit log, and rosters.

Members see each other. Only owners invite, change and remove, and read the audit log; but every
member may leave. Rosters are for proxies: frames that members signed, in and out.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from typing import Any, cast

from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.http import HttpResponse, StreamingHttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from msgspec import convert
from rest_framework import generics, mixins, serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from encrypted_records.errors import Conflict, Malformed, NotFound, TooLarge
from encrypted_records.model import ids, resources, wire
from encrypted_records.model import roster as form
from encrypted_records.server import permissions
from encrypted_records.server.accounts import limits
from encrypted_records.server.accounts.authentication import (
    READS,
    READS_ALL,
    READS_AND_ADDS,
    WITH_JOBS,
    token_limited,
    token_limited_to_datasets,
)
from encrypted_records.server.accounts.models import JobGrant, User
from encrypted_records.server.db.fields import identifier
from encrypted_records.server.http.bodies import (
    FRAMES,
    FRAMES_BODY,
    FramesParser,
    KnownMembers,
    Shown,
    TextField,
    body_of,
    invalid_parameter,
    number_of,
    stream,
    valid,
)
from encrypted_records.server.http.openapi import BY_ID, BY_SLUG
from encrypted_records.server.organizations import (
    audit,
    members,
    roster,
    roster_data,
    roster_members,
)
from encrypted_records.server.organizations.models import (
    AuditEntry,
    DatasetKey,
    Invitation,
    Membership,
    Organization,
    Service,
    create_organization,
)


class OrganizationSerializer(Shown, KnownMembers, serializers.ModelSerializer[Organization]):
    structure = resources.OrganizationResource
    name = TextField(max_length=200)

    class Meta:
        model = Organization
        fields = ["name"]

    def to_representation(self, instance: Organization) -> Any:
        return convert(instance, resources.OrganizationResource, from_attributes=True)


class MemberSerializer(Shown, KnownMembers):
    structure = resources.MemberResource
    role = serializers.ChoiceField(Membership.Role.choices)

    def to_representation(self, instance: Membership) -> Any:
        organization = ids.reference("organizations", instance.organization_id)
        return resources.MemberResource(
            url=f"{organization}members/{instance.user_id}/",
            organization=organization,
            user=instance.user.url,
            email=instance.user.email,
            first_name=instance.user.first_name,
            last_name=instance.user.last_name,
            role=cast(resources.Role, instance.role),
            created=instance.created,
        )


class InvitationSerializer(Shown, KnownMembers):
    structure = resources.InvitationResource
    email = serializers.EmailField(max_length=254)
    role = serializers.ChoiceField(Membership.Role.choices, default=Membership.Role.MEMBER)

    def to_representation(self, instance: Invitation) -> Any:
        return resources.InvitationResource(
            id=instance.id,
            organization=ids.reference("organizations", instance.organization_id),
            organization_name=instance.organization.name,
            email=instance.email,
            role=cast(resources.Role, instance.role),
            invited_by=instance.invited_by.email,
            created=instance.created,
            expires=instance.expires,
        )


class AuditEntrySerializer(Shown):
    structure = resources.AuditEntryResource

    def to_representation(self, instance: AuditEntry) -> Any:
        user, asking = instance.user, self.context["request"].user
        # A removed user does not learn who did it.
        hidden = instance.action == "member.removed" and instance.subject == asking.url
        return resources.AuditEntryResource(
            id=instance.id,
            created=instance.created,
            user=None if user is None else user.url,
            email=None if user is None or user.deleted is not None else user.email,
            action=instance.action,
            subject=instance.subject,
            source="" if hidden else instance.source,
            request_id="" if hidden else instance.request_id,
        )


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
        return _user(self.request)

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

    def get_success_headers(self, data: Any) -> dict[str, str]:
        return {"Location": data.url}

    def perform_update(self, serializer: serializers.BaseSerializer[Any]) -> None:
        organization = cast(Organization, serializer.instance)
        permissions.require_owner(self.user, organization)
        with transaction.atomic():
            # Saving writes every column, also the head of a roster that moved on meanwhile.
            serializer.instance = members.lock(organization)
            serializer.save()
            audit.note(
                self.user, audit.Action.ORGANIZATION_CHANGED, organization.pk, organization.url
            )


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
    """The people whom an organization has invited, for its owners."""

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
        made = members.invite(user, organization, **valid(InvitationSerializer, request))
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
    filters = ("action", "without", "user", "until")
    queryset = AuditEntry.objects.none()

    @extend_schema(
        parameters=[
            OpenApiParameter("action", str, enum=list(audit.Action)),
            OpenApiParameter("without", str, enum=list(audit.Action)),
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
            entries = entries.filter(subject=caller.url, action=audit.Action.MEMBER_REMOVED)
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


def _known(name: str, action: str) -> audit.Action:
    try:
        return audit.Action(action)
    except ValueError:
        raise invalid_parameter(name, f"expected one of {', '.join(audit.Action)}") from None


def _end_of_day(text: str) -> datetime:
    """The last moment of the day, in UTC."""
    try:
        return datetime.combine(date.fromisoformat(text), time.max, UTC)
    except ValueError:
        raise invalid_parameter("until", "expected a day, such as 2026-01-31") from None


_SINCE = OpenApiParameter("since", int)
_MEMBER = OpenApiParameter("member", str)


class ServiceSerializer(Shown, KnownMembers):
    structure = resources.ServiceResource
    id = serializers.RegexField(rf"^{ids.PATTERN}\Z")
    name = TextField(max_length=150)
    token_digest = serializers.RegexField(r"^[0-9a-f]{64}\Z", write_only=True)
    expires = serializers.DateTimeField(allow_null=True, default=None)

    def to_representation(self, instance: Service) -> Any:
        return resources.ServiceResource(
            id=instance.pk,
            name=instance.user.first_name,
            expires=instance.expires,
            created=instance.created,
            last_used=instance.last_used,
        )


class RosterView(APIView):
    """The signed list of who is in an organization, with which keys and rights."""

    token_uses = READS_AND_ADDS
    # A job seals with granted keys, and signs its commits.
    authentication_classes = WITH_JOBS
    parser_classes = [FramesParser]

    @extend_schema(parameters=[_SINCE], responses=FRAMES)
    def get(self, request: Request, organization_id: str) -> StreamingHttpResponse:
        """The entries after number ``since``, at most 1,000; for members and the invited. An API
        token that is limited to some datasets gets them without the names that concern others."""
        user = _user(request)
        organization = permissions.organization_of_roster(user, organization_id)
        among = None if permissions.token_limit(user) is None else permissions.datasets(user)
        since = number_of(request, "since", 0) or 0
        return stream(roster.entries_after(organization, since, among))

    @extend_schema(request=FRAMES_BODY, responses={200: None, 201: None})
    def post(self, request: Request, organization_id: str) -> HttpResponse:
        """Add entries and grants, all or none."""
        user = _user(request)
        organization = permissions.find(permissions.organizations(user), organization_id)
        entries, sealed = _split(body_of(request))
        if user.acting is not None or isinstance(request.auth, JobGrant):
            _require_first_use(user, entries)
        new = roster.append(user, organization, entries, sealed)
        return HttpResponse(status=201 if new else 200)


def _split(body: bytes) -> tuple[list[form.RosterEntry], list[form.Grant]]:
    """
    Raises:
        Malformed, Unsupported: the body contains anything but entries and grants.
    """
    entries: list[form.RosterEntry] = []
    sealed: list[form.Grant] = []
    for item in wire.decode(body):
        if isinstance(item, form.RosterEntry):
            entries.append(item)
        elif isinstance(item, form.Grant):
            sealed.append(item)
        else:
            raise Malformed("a frame of this kind is not allowed here", code="malformed_frame")
    return entries, sealed


class Grants(APIView):
    """Keys of datasets, sealed to members."""

    token_uses = READS
    authentication_classes = WITH_JOBS

    @extend_schema(parameters=[_MEMBER], responses=FRAMES)
    def get(self, request: Request, organization_id: str) -> StreamingHttpResponse:
        """The caller's own, the newest of each dataset; an owner may name another ``member``. An
        API token that is limited to some datasets gets those of its own datasets alone."""
        user = _user(request)
        among = permissions.token_limit(user)
        member = request.query_params.get("member", user.pk)
        if member == user.pk:
            organization = permissions.find(permissions.organizations(user), organization_id)
        elif among is not None:
            raise token_limited_to_datasets()
        else:
            organization = permissions.find_owned(user, organization_id)
            member = ids.to_text(ids.from_path(member))
        return stream(roster_data.newest_grants(organization, member, among))


class AnswersView(APIView):
    """The answers of invited people."""

    @extend_schema(responses=FRAMES)
    def get(self, request: Request, organization_id: str) -> StreamingHttpResponse:
        """Answers of people who wait to be admitted, for owners."""
        organization = permissions.find_owned(_user(request), organization_id)
        return stream(roster_members.waiting_answers(organization))


class OwnAnswer(APIView):
    """The public keys with which somebody answers an invitation."""

    parser_classes = [FramesParser]

    @extend_schema(responses=FRAMES)
    def get(self, request: Request, invitation_id: str) -> StreamingHttpResponse:
        """The caller's answer."""
        return stream([roster_members.own_answer(_user(request), invitation_id)])

    @extend_schema(request=FRAMES_BODY, responses={200: None, 201: None})
    def put(self, request: Request, invitation_id: str) -> HttpResponse:
        """Answer it, in place of what was answered before."""
        answer = wire.decode_single(body_of(request), form.Answer)
        new = roster_members.give_answer(_user(request), invitation_id, answer)
        return HttpResponse(status=201 if new else 200)


class RequestsView(APIView):
    """Requests of members for access to datasets, signed by those who ask."""

    parser_classes = [FramesParser]

    @extend_schema(responses=FRAMES)
    def get(self, request: Request, organization_id: str) -> StreamingHttpResponse:
        """All that wait, for owners; for others their own, with those that were declined."""
        user = _user(request)
        organization = permissions.find(permissions.organizations(user), organization_id)
        is_owner = permissions.owns(user, organization.pk)
        return stream(members.requests_of(organization, user, is_owner=is_owner))

    @extend_schema(request=FRAMES_BODY, responses={200: None, 201: None})
    def put(self, request: Request, organization_id: str) -> HttpResponse:
        """Ask for a dataset that is listed, in place of an earlier request for it."""
        user = _user(request)
        organization = permissions.find(permissions.organizations(user), organization_id)
        access_request = wire.decode_single(body_of(request), form.AccessRequest)
        new = members.ask_access(user, organization, access_request)
        return HttpResponse(status=201 if new else 200)


class RequestDetail(APIView):
    @extend_schema(responses={204: None})
    def delete(
        self, request: Request, organization_id: str, dataset_id: str, user_id: str
    ) -> Response:
        """Withdraw one's own request, or decline that of another as an owner."""
        user = _user(request)
        organization = permissions.find(permissions.organizations(user), organization_id)
        if user_id != user.pk:
            permissions.require_owner(user, organization)
        members.end_request(user, organization, dataset_id, user_id)
        return Response(status=204)


class ServicesView(generics.ListAPIView[Service]):
    """Programs with a standing of their own, and when each was last used, for owners."""

    serializer_class = ServiceSerializer
    queryset = Service.objects.none()

    def get_queryset(self) -> QuerySet[Service]:
        owned = permissions.find_owned(_user(self.request), self.kwargs["organization_id"])
        return owned.services.select_related("user").order_by("pk")

    @extend_schema(
        request=ServiceSerializer, responses={200: ServiceSerializer, 201: ServiceSerializer}
    )
    def post(self, request: Request, organization_id: str) -> Response:
        """Make one. It reaches nothing until an entry of the roster makes it a member."""
        user = _user(request)
        organization = permissions.find_owned(user, organization_id)
        data = valid(ServiceSerializer, request)
        made, new = _make_service(
            user,
            organization,
            service_id=ids.to_text(ids.from_text(data["id"])),
            name=data["name"],
            digest=bytes.fromhex(data["token_digest"]),
            expires=data["expires"],
        )
        return Response(ServiceSerializer(made).data, status=201 if new else 200)


# Entries that a job, or an API token, may add to a roster: those that a first record needs.
#
# A member has to sign them all the same. Entries that change rights need a user who has logged in.


def _require_first_use(user: User, entries: Sequence[form.RosterEntry]) -> None:
    """
    Raises:
        NotAllowed: ``token_limited``; an entry does more than found the organization, begin the
            first keys of datasets or name them, and place schemas, within the token's reach.
        Malformed, Unsupported: an entry is malformed.
    """
    named: set[str] = set()
    for entry in entries:
        content = form.read_entry(entry).content
        match content:
            case form.FoundingEntry():
                continue
            case form.DatasetName():
                dataset = ids.to_text(content.dataset)
                present = DatasetKey.objects.filter(dataset=dataset).first()
                if content.epoch != (1 if present is None else present.epoch):
                    raise _beyond()
                named.add(dataset)
            case list():
                named |= {ids.to_text(grant.dataset) for grant in content}
            case _:
                raise _beyond()
    reached = permissions.datasets(user).filter(pk__in=named).values_list("pk", flat=True)
    if set(reached) != named:
        raise _beyond()


def _beyond() -> Exception:
    return token_limited(
        "a job, or an API token, cannot do this", "log in, and do this as yourself"
    )


# Create services: a user with a token, which reaches nothing until the roster has its standing.


def _make_service(
    by: User,
    organization: Organization,
    *,
    service_id: str,
    name: str,
    digest: bytes,
    expires: datetime | None,
) -> tuple[Service, bool]:
    """Create a service; returns it, and whether it is new.

    Args:
        digest: SHA-256 of its token, 32 bytes.

    Raises:
        Conflict: ``id_taken``; the id or the token belongs to another user.
        TooLarge: the organization has too many.
    """
    with transaction.atomic():
        locked = members.lock(organization)
        known = Service.objects.select_related("user").filter(pk=service_id).first()
        if known is not None:
            same = known.organization_id == locked.pk and bytes(known.digest) == digest
            if same and known.user.first_name == name:
                return known, False
            raise _taken()
        if locked.services.count() >= form.MAX_MEMBERS:
            raise TooLarge(f"an organization has at most {form.MAX_MEMBERS} services")
        try:
            with transaction.atomic():
                # An address that can never exist (RFC 2606), and no password: only its token
                # authenticates it.
                user = User(
                    pk=service_id,
                    email=f"{service_id}@service.invalid",
                    first_name=name,
                    verified=timezone.now(),
                    is_active=True,
                )
                user.set_unusable_password()
                user.save(force_insert=True)
                made = Service.objects.create(
                    user=user, organization=locked, digest=digest, expires=expires
                )
        except IntegrityError:
            raise _taken() from None
        audit.note(by, audit.Action.SERVICE_CREATED, locked.pk, ids.reference("users", service_id))
    return made, True


def _taken() -> Conflict:
    return Conflict(
        "a service's id or token is taken",
        code="id_taken",
        hint="create a new secret key for it",
    )
