"""Members of an organization: invite, join, change roles, leave, and request access.

Every change locks the organization first, so that two concurrent changes cannot remove its last
owner. Operators' help for an organization that lost its last owner is here, too.

Members request access to listed datasets, and owners grant or decline it. A request is signed with
the member's key, so the API cannot forge it. The API refuses requests that do not match the roster
(docs/SPEC.md, section 15.11), and keeps one per member and dataset. A request gives no access: an
owner who agrees signs a standing, as without a request. Any entry that invalidates a request
deletes it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from encrypted_records import errors
from encrypted_records.model import ids
from encrypted_records.model import roster as form
from encrypted_records.rules import roster_judging
from encrypted_records.rules.roster_judging import REQUEST_SECONDS, RequestFault
from encrypted_records.rules.roster_state import Member
from encrypted_records.server import permissions, signatures
from encrypted_records.server.accounts import limits, mail
from encrypted_records.server.accounts.models import User, of_address
from encrypted_records.server.organizations import audit
from encrypted_records.server.organizations.models import (
    Invitation,
    Membership,
    Organization,
    StoredRequest,
)
from encrypted_records.server.organizations.roster_change import (
    STATES,
    RosterChange,
    invalid,
    moved,
    require,
)

_THIS_MACHINE = {"localhost", "127.0.0.1", "::1"}


def invite(by: User, organization: Organization, email: str, role: str) -> Invitation:
    """Invite an address, whether it has an account or not; this replaces an earlier invitation.

    Raises:
        Conflict: ``already_member``, ``through_a_proxy``.
    """
    with transaction.atomic():
        _through_a_proxy_alone(
            lock(organization), "ers share invite EMAIL --dataset DATASET --role reader"
        )
        if organization.memberships.filter(user__in=User.objects.with_email(email)).exists():
            raise errors.Conflict("the address already belongs to a member", code="already_member")
        of_address(organization.invitations.all(), email).delete()
        invitation = Invitation.objects.create(
            organization=organization, email=email, role=role, invited_by=by
        )
        audit.note(by, audit.Action.MEMBER_INVITED, organization.pk, organization.url)
    write_to([invitation])
    return invitation


def write_to(invitations: Iterable[Invitation]) -> None:
    """Send the messages of stored invitations."""
    for invitation in invitations:
        mail.later(_send_invitation, invitation)


def _send_invitation(invitation: Invitation) -> None:
    url = settings.PUBLIC_URL
    # The address of this machine is of no use to another person.
    server = "ADDRESS" if urlsplit(url).hostname in _THIS_MACHINE else url
    context = {"invitation": invitation, "public_url": url, "server": server}
    subject = "An invitation to an organization"
    mail.send(invitation.email, subject, "organizations/invitation", context)


def accept(user: User, invitation: Invitation) -> Membership:
    """Make the user a member, as the invitation says.

    Raises:
        Conflict: ``through_a_proxy``.
        NotAuthenticated: the account was deleted at this moment.
        NotFound: the invitation was withdrawn at this moment.
    """
    organization = invitation.organization
    with transaction.atomic():
        _through_a_proxy_alone(
            lock(organization), "ers share accept ID, with the twelve words that you were told"
        )
        require_existing(user.pk)
        _delete(invitation)
        membership, _ = Membership.objects.get_or_create(
            organization=organization,
            user=user,
            defaults={"role": invitation.role, "all_data": True},
        )
        audit.note(user, audit.Action.MEMBER_JOINED, organization.pk, user.url)
    return membership


def change_role(by: User, membership: Membership, role: str) -> None:
    """
    Raises:
        Conflict: ``last_owner``, ``through_a_proxy``.
        NotFound: the member was removed at this moment.
    """
    with transaction.atomic():
        _through_a_proxy_alone(
            lock(membership.organization), "ers organization member update EMAIL --role ROLE"
        )
        if role != Membership.Role.OWNER:
            _keep_an_owner(membership)
        if not Membership.objects.filter(pk=membership.pk).update(role=role):
            raise permissions.unreachable()
        membership.role = role
        audit.note(by, audit.Action.MEMBER_CHANGED, membership.organization_id, membership.user.url)


def remove(by: User, membership: Membership) -> None:
    """
    Raises:
        Conflict: ``last_owner``, ``through_a_proxy``.
        NotFound: the member was removed at this moment.
    """
    with transaction.atomic():
        organization = lock(membership.organization)
        standing = organization.standings.filter(member=membership.user_id, present=True)
        if standing.exists():
            _through_a_proxy_alone(organization, "ers organization member delete EMAIL")
        _keep_an_owner(membership)
        _delete(membership)
        audit.note(by, audit.Action.MEMBER_REMOVED, membership.organization_id, membership.user.url)


def withdraw(by: User, invitation: Invitation) -> None:
    """
    Raises:
        Conflict: ``through_a_proxy``.
        NotFound: it was accepted, declined or replaced at this moment.
    """
    with transaction.atomic():
        organization = lock(invitation.organization)
        _through_a_proxy_alone(organization, "ers share withdraw ID")
        _delete(invitation)
        audit.note(by, audit.Action.INVITATION_WITHDRAWN, organization.pk, organization.url)


def _delete(row: Invitation | Membership) -> None:
    """Delete a row that was read before its organization was locked.

    Raises:
        NotFound: another request was first.
    """
    if not row.delete()[0]:
        raise permissions.unreachable()


def lock(organization: Organization) -> Organization:
    """Reload and lock the organization; it cannot be changed by other transactions until this one
    ends.
    """
    # no_key: transactions that only refer to the organization, such as audit entries, need not
    # wait.
    return Organization.objects.select_for_update(no_key=True).get(pk=organization.pk)


def require_existing(user_id: str) -> None:
    """Lock an account, so that it is not deleted before this transaction ends. Organizations must
    be locked first.

    Raises:
        NotAuthenticated: ``bad_credentials``; it was deleted.
    """
    if not User.objects.lock_existing(user_id):
        raise errors.NotAuthenticated("the account was deleted", code="bad_credentials")


def _through_a_proxy_alone(organization: Organization, command: str) -> None:
    """
    Args:
        command: the command that makes the same change through a proxy.

    Raises:
        Conflict: ``through_a_proxy``; the members are in the roster, which members sign.
    """
    if organization.has_roster:
        raise errors.Conflict(
            "the members of this organization are in its roster, which only signed"
            " entries can change",
            code="through_a_proxy",
            hint=(
                f"{command}, with which a proxy signs the change; or its path"
                " /api/organizations/<id>/people/"
            ),
        )


def _keep_an_owner(leaving: Membership) -> None:
    owners = Membership.objects.filter(
        organization=leaving.organization_id, role=Membership.Role.OWNER
    )
    if not owners.exclude(pk=leaving.pk).exists():
        raise errors.Conflict(
            "an organization keeps at least one owner",
            code="last_owner",
            hint="make another member an owner first",
        )


def make_owner(email: str, slug: str) -> None:
    """Make an account an owner of an organization at the API.

    If the organization has a roster, that alone gives no access: only a user who also has the lost
    owner's recovery words can sign themselves in.

    Raises:
        NotFound: there is no such account, or organization.
    """
    user = User.objects.with_email(email).filter(is_active=True).first()
    organization = Organization.objects.filter(slug=slug).first()
    if user is None or organization is None:
        raise errors.NotFound(
            "there is no such account" if user is None else "there is no such organization",
            hint="name the account by its address and the organization by its slug",
        )
    with transaction.atomic():
        locked = lock(organization)
        require_existing(user.pk)
        Membership.objects.update_or_create(
            organization=locked,
            user=user,
            defaults={"role": Membership.Role.OWNER},
            create_defaults={
                "role": Membership.Role.OWNER,
                "all_data": not locked.has_roster,
            },
        )
        audit.note(user, audit.Action.MEMBER_CHANGED, locked.pk, user.url)


#: The most requests of a member, including declined requests.
MAX_REQUESTS = 20
#: How long a member cannot repeat a declined request.
DECLINED_FOR = timedelta(days=7)

_FAULTS = {
    RequestFault.MEMBER: "only people who are members, and no owners, ask for access",
    RequestFault.SIGNATURE: "the request was not signed with the member's keys",
    RequestFault.ROSTER: "the request names an entry that the roster does not have",
    RequestFault.OVER: "the request is too old, or its time is in the future",
}


def requests_of(
    organization: Organization, user: User, *, is_owner: bool
) -> Iterator[form.AccessRequest]:
    """For owners, all waiting requests; for other members, their requests, with declined
    requests.
    """
    recent = _of_organization(organization).filter(created__gt=_oldest())
    wanted = recent.filter(declined=None) if is_owner else recent.filter(membership__user=user)
    for body, signature, declined in wanted.order_by("pk").values_list(
        "body", "signature", "declined"
    ):
        at = 0 if declined is None else int(declined.timestamp())
        yield form.AccessRequest(bytes(body), bytes(signature), at)


def ask_access(user: User, organization: Organization, request: form.AccessRequest) -> bool:
    """Store a request of the user, in place of an earlier request for the same dataset; returns
    whether it is new.

    Raises:
        Malformed, Unsupported: its format is wrong.
        BadInput: ``invalid_entry``; it is another user's, or not valid by the roster.
        NotAllowed: ``not_listed``.
        Conflict: ``roster_moved``, ``already_shared``, ``request_declined``.
        TooLarge: the member has too many.
        Throttled: too many were made in the last hour.
    """
    body = form.read_request(request)
    signed_by = (ids.to_text(body.organization), ids.to_text(body.member))
    require(
        signed_by == (organization.pk, user.pk), "the request was signed by or for somebody else"
    )
    with transaction.atomic():
        locked = lock(organization)
        membership = locked.memberships.filter(user=user).first()
        if membership is None:
            raise permissions.unreachable()
        dataset = ids.to_text(body.dataset)
        earlier = StoredRequest.objects.filter(membership=membership, dataset=dataset).first()
        if earlier is not None and earlier.declined is None and bytes(earlier.body) == request.body:
            return False
        _require_standing(locked, request, body)
        if not locked.datasets.filter(pk=dataset).exists():
            raise _refusal(RequestFault.LISTED)
        _require_room(membership, earlier)
        limits.throttle_account("requests", user.pk)
        if earlier is not None:
            earlier.delete()
        StoredRequest.objects.create(
            membership=membership,
            dataset_id=dataset,
            body=request.body,
            signature=request.signature,
        )
        audit.note(
            user, audit.Action.ACCESS_ASKED, locked.pk, ids.reference("datasets", body.dataset)
        )
    return True


def _require_standing(
    organization: Organization, request: form.AccessRequest, body: form.AccessRequestBody
) -> None:
    """
    Raises:
        Conflict: ``roster_moved``; the request does not name the newest entry.
        ErsError: as :func:`ask_access`.
    """
    head = (organization.roster_number, bytes(organization.roster_digest))
    if (body.number, body.digest) != head:
        raise moved("sign the request")
    state = STATES.of(organization).state
    now = int(time.time())
    fault = roster_judging.judge_request(
        state, request, body, digest=state.digest, is_by=signatures.is_by, now=now
    )
    if fault is not None:
        raise _refusal(fault)


def _refusal(fault: RequestFault) -> errors.ErsError:
    if fault is RequestFault.LISTED:
        return errors.NotAllowed(
            "members cannot ask for access to this dataset",
            code="not_listed",
            hint="ask an owner of the organization in another way",
        )
    if fault is RequestFault.RIGHT:
        return errors.Conflict("the member has this right already", code="already_shared")
    return invalid(_FAULTS[fault])


def _require_room(membership: Membership, earlier: StoredRequest | None) -> None:
    """
    Raises:
        Conflict: ``request_declined``; an owner declined it recently.
        TooLarge: the member has too many.
    """
    if earlier is not None:
        if earlier.declined is not None and timezone.now() < earlier.declined + DECLINED_FOR:
            raise errors.Conflict(
                "an owner has declined this request",
                code="request_declined",
                hint="ask the owner in another way, or repeat the request a week after it was"
                " declined",
            )
    elif membership.requests.filter(created__gt=_oldest()).count() >= MAX_REQUESTS:
        raise errors.TooLarge(
            f"a member has at most {MAX_REQUESTS} requests for access",
            hint="withdraw a request, or wait until an owner has answered",
        )


def end_request(by: User, organization: Organization, dataset_id: str, user_id: str) -> None:
    """End a waiting request: its member withdraws it, or an owner declines it.

    Raises:
        NotFound: ``no_request``; there is no waiting request. An owner may decline a request twice.
    """
    with transaction.atomic():
        lock(organization)
        found = _of_organization(organization).filter(
            dataset=ids.to_text(ids.from_path(dataset_id)),
            membership__user=ids.to_text(ids.from_path(user_id)),
        )
        request = found.select_related("membership__user").first()
        withdraws = request is not None and request.membership.user_id == by.pk
        if request is None or (withdraws and request.declined is not None):
            raise errors.NotFound("there is no such open request", code="no_request")
        if withdraws:
            request.delete()
            dataset = ids.reference("datasets", ids.from_text(request.dataset_id))
            audit.note(by, audit.Action.ACCESS_WITHDRAWN, organization.pk, dataset)
        elif request.declined is None:
            request.declined = timezone.now()
            request.save(update_fields=["declined"])
            audit.note(
                by, audit.Action.ACCESS_DECLINED, organization.pk, request.membership.user.url
            )


def end_requests_of_member(change: RosterChange, before: Member | None, member: bytes) -> None:
    """Delete the requests that a member's new standing invalidates."""
    after = change.state.member(member)
    assert after is not None, "an entry has just said it"
    requests = _of_organization(change.organization).filter(membership__user=ids.to_text(member))
    if before is None or roster_judging.is_other_member(before, after):
        requests.delete()
        return
    named = {share.dataset for share in (*before.shares, *after.shares)}
    ended = [
        ids.to_text(dataset)
        for dataset in named
        if roster_judging.shares_of(before, dataset) != roster_judging.shares_of(after, dataset)
    ]
    requests.filter(dataset__in=ended).delete()


def end_requests_for_dataset(change: RosterChange, dataset: bytes) -> None:
    """Delete all requests for a dataset when it is listed or unlisted."""
    _of_organization(change.organization).filter(dataset=ids.to_text(dataset)).delete()


def drop_old_requests() -> None:
    """Delete expired requests."""
    StoredRequest.objects.filter(created__lt=_oldest()).delete()


def _oldest() -> datetime:
    """Requests made before this moment have expired."""
    return timezone.now() - timedelta(seconds=REQUEST_SECONDS)


def _of_organization(organization: Organization) -> QuerySet[StoredRequest]:
    return StoredRequest.objects.filter(membership__organization=organization)
