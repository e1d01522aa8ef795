"""Endpoints of the roster, for proxies: frames that members signed, in and out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import cast

from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.http import HttpResponse, StreamingHttpResponse
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from encrypted_records.errors import Conflict, Malformed, TooLarge
from encrypted_records.model import ids, wire
from encrypted_records.model import roster as form
from encrypted_records.model.roster import MAX_MEMBERS, RosterEntry
from encrypted_records.server import permissions
from encrypted_records.server.accounts.api_tokens import (
    READS,
    READS_AND_ADDS,
    limited,
    of_organization,
)
from encrypted_records.server.accounts.authentication import WITH_JOBS
from encrypted_records.server.accounts.models import JobGrant, User
from encrypted_records.server.http.bodies import FRAMES, FRAMES_BODY, FramesParser, body_of, stream
from encrypted_records.server.http.parameters import KnownMembers, TextField, number_of
from encrypted_records.server.organizations import (
    audit,
    members,
    roster,
    roster_data,
    roster_members,
)
from encrypted_records.server.organizations.audit import Action
from encrypted_records.server.organizations.models import DatasetKey, Organization, Service

_SINCE = OpenApiParameter("since", int)
_MEMBER = OpenApiParameter("member", str)


class ServiceSerializer(KnownMembers, serializers.Serializer[Service]):
    id = serializers.RegexField(rf"^{ids.PATTERN}\Z", source="pk")
    name = TextField(max_length=150, source="user.first_name")
    token_digest = serializers.RegexField(r"^[0-9a-f]{64}\Z", write_only=True)
    expires = serializers.DateTimeField(allow_null=True, default=None)
    created = serializers.DateTimeField(read_only=True)
    last_used = serializers.DateTimeField(read_only=True, allow_null=True)


def _user(request: Request) -> User:
    return cast(User, request.user)


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
            raise of_organization()
        else:
            organization = permissions.find_owned(user, organization_id)
            member = ids.to_text(ids.from_path(member))
        return stream(roster_data.newest_grants(organization, member, among))


class AnswersView(APIView):
    """What the invited have answered."""

    @extend_schema(responses=FRAMES)
    def get(self, request: Request, organization_id: str) -> StreamingHttpResponse:
        """Those that wait to be admitted, for owners."""
        organization = permissions.find_owned(_user(request), organization_id)
        return stream(roster_members.waiting_answers(organization))


class OwnAnswer(APIView):
    """The public keys with which somebody answers an invitation."""

    parser_classes = [FramesParser]

    @extend_schema(responses=FRAMES)
    def get(self, request: Request, invitation_id: str) -> StreamingHttpResponse:
        """What the caller has answered."""
        return stream([roster_members.own_answer(_user(request), invitation_id)])

    @extend_schema(request=FRAMES_BODY, responses={200: None, 201: None})
    def put(self, request: Request, invitation_id: str) -> HttpResponse:
        """Answer it, in place of what was answered before."""
        answer = wire.decode_one(body_of(request), form.Answer)
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
        asked = wire.decode_one(body_of(request), form.AccessRequest)
        new = members.ask_access(user, organization, asked)
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
        wanted = ServiceSerializer(data=request.data)
        wanted.is_valid(raise_exception=True)
        data = wanted.validated_data
        made, new = _make_service(
            user,
            organization,
            service_id=ids.to_text(ids.from_text(data["pk"])),
            name=data["user"]["first_name"],
            digest=bytes.fromhex(data["token_digest"]),
            expires=data["expires"],
        )
        return Response(ServiceSerializer(made).data, status=201 if new else 200)


# Entries that a job, or an API token, may add to a roster: those that a first record needs.
#
# A member has to sign them all the same. Entries that change rights need a user who has logged in.


def _require_first_use(user: User, entries: Sequence[RosterEntry]) -> None:
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
    return limited("a job, or an API token, cannot do this", "log in, and do this as yourself")


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
        if locked.services.count() >= MAX_MEMBERS:
            raise TooLarge(f"an organization has at most {MAX_MEMBERS} services")
        try:
            with transaction.atomic():
                made = _store(locked, service_id, name, digest, expires)
        except IntegrityError:
            raise _taken() from None
        audit.note(by, Action.SERVICE_CREATED, locked.pk, ids.reference("users", service_id))
    return made, True


def _store(
    organization: Organization, service_id: str, name: str, digest: bytes, expires: datetime | None
) -> Service:
    # An address that can never exist (RFC 2606), and no password: only its token authenticates it.
    user = User(
        pk=service_id,
        email=f"{service_id}@service.invalid",
        first_name=name,
        verified=timezone.now(),
        is_active=True,
    )
    user.set_unusable_password()
    user.save(force_insert=True)
    return Service.objects.create(
        user=user, organization=organization, digest=digest, expires=expires
    )


def _taken() -> Conflict:
    return Conflict(
        "a service's id or token is taken",
        code="id_taken",
        hint="create a new secret key for it",
    )
