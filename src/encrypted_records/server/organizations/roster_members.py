"""People and services in a roster: founding, invitations, answers, admissions and removals.

Readers of the roster judge these entries, too. The API also checks that accounts and services
exist, and that an invitation was sent and answered.

An answer is the public keys of an invited user, signed by a key that is derived from the twelve
words. The API cannot forge an answer, because it does not have the words. It refuses answers that
it cannot verify, so that the invitation stays open for the right answer.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction

from encrypted_records.errors import BadInput, Conflict, NotAllowed, NotFound, how_far
from encrypted_records.model import ids, wire
from encrypted_records.model import roster as form
from encrypted_records.rules.roster_state import NOTHING, Member
from encrypted_records.server import permissions, signatures
from encrypted_records.server.accounts.models import User, of_address
from encrypted_records.server.datasets.models import Schema
from encrypted_records.server.db.databases import reading_stored
from encrypted_records.server.organizations.audit import Action
from encrypted_records.server.organizations.models import (
    Entry,
    Invitation,
    Membership,
    Organization,
    Seat,
    Service,
    Shared,
    Standing,
    StoredGrant,
)
from encrypted_records.server.organizations.roster_change import (
    RosterChange,
    moment,
    plain,
    require,
)


def answer_of(seat: Seat) -> form.Answer | None:
    """The answer to an invitation."""
    if seat.answer is None:
        return None
    with reading_stored("an answer to an invitation"):
        return wire.decode_single(bytes(seat.answer), form.Answer)


def give_answer(user: User, invitation_id: str, answer: form.Answer) -> bool:
    """Store the answer of an invited user, replacing an earlier answer; returns whether it is new.

    Raises:
        NotFound: no open invitation to the user has this id.
        Conflict: ``invitation_over``.
        BadInput: ``invalid_entry``; the words are wrong, or the answer is for another user.
    """
    invitation = _mine(user, invitation_id)
    with transaction.atomic():
        seat = Seat.objects.select_for_update().filter(pk=invitation.pk).first()
        if seat is None or seat.over or seat.expires < time.time():
            raise Conflict(
                "the invitation is over", code="invitation_over", hint="ask to be invited again"
            )
        _require_right(user, seat, answer)
        kept = wire.encode([answer])
        if seat.answer is not None and bytes(seat.answer) == kept:
            return False
        seat.answer = kept
        seat.save(update_fields=["answer"])
    return True


def own_answer(user: User, invitation_id: str) -> form.Answer:
    """The answer that the user has given.

    Raises:
        NotFound: there is no answer, or no such invitation.
    """
    seat = Seat.objects.filter(pk=_mine(user, invitation_id).pk).first()
    given = None if seat is None else answer_of(seat)
    if given is None:
        raise NotFound("this invitation has no answer")
    return given


def waiting_answers(organization: Organization) -> Iterator[form.Answer]:
    """All answers that no entry has admitted yet, for owners."""
    for seat in organization.seats.filter(over=False).exclude(answer=None).order_by("pk"):
        given = answer_of(seat)
        if given is not None:
            yield given


def decline_invitation(invitation: Invitation) -> None:
    """End an invitation that the invited user declines."""
    with transaction.atomic():
        Seat.objects.filter(pk=invitation.pk).update(over=True, answer=None)
        invitation.delete()


def _mine(user: User, invitation_id: str) -> Invitation:
    """An invitation to the user's address, possibly expired."""
    own_answer = of_address(Invitation.objects.all(), user.email)
    found = own_answer.filter(pk=ids.from_path(invitation_id)).first()
    if found is None:
        raise permissions.unreachable()
    return found


def _require_right(user: User, seat: Seat, answer: form.Answer) -> None:
    require(answer.format == form.FORMAT, "the answer has an unknown format")
    named = (ids.to_text(answer.organization), ids.to_text(answer.id), ids.to_text(answer.member))
    require(
        named == (seat.organization_id, seat.pk, user.pk), "the answer is to another invitation"
    )
    standings = Standing.objects.filter(organization=seat.organization_id)
    if seat.member is None:
        never = not standings.filter(member=user.pk).exists()
        require(never, "the invitation is for a person who was never a member")
    else:
        require(seat.member == user.pk, "the invitation is for another member")
    signed = form.answer_message(
        bytes(seat.digest), answer.member, answer.keys, answer.anchor, answer.proof
    )
    right = signatures.is_right(bytes(seat.answer_key), answer.signature, signed)
    require(right, "the answer was not made with the words of the invitation")
    first = Entry.objects.get(organization=seat.organization_id, number=1)
    proved = form.proof_message(bytes(first.digest), answer.member, answer.keys, answer.anchor)
    proof = signatures.is_by(answer.keys, answer.proof, proved)
    require(proof, "the answer's keys come without a proof")


#: An invitation expires within 7 days, by a clock that may differ from ours by a day.
_LONGEST_INVITATION = 8 * 86_400


def found(change: RosterChange, body: form.EntryBody, content: form.FoundingEntry[str]) -> None:
    """Apply the first entry: its signer becomes the first owner, with access to everything.

    Raises:
        BadInput: ``invalid_entry``.
        NotAllowed: ``owners_only``; the caller is not an owner at the API.
        Conflict: ``has_records``; the records are not signed, so a roster would make their schemas
            unusable.
    """
    if Schema.objects.filter(dataset__organization=change.organization, version__gt=0).exists():
        raise Conflict(
            "the organization has records that were stored before it had a roster",
            code="has_records",
            hint=(
                "the organization continues without a roster; to share, store the records in"
                " a new organization"
            ),
        )
    member = ids.to_text(body.actor)
    require(member == change.caller.pk, "the first entry was signed by somebody else")
    memberships = Membership.objects.filter(organization=change.organization)
    if not memberships.filter(user=member, role=Membership.Role.OWNER).exists():
        raise NotAllowed("only owners of the organization may do this", code="owners_only")
    plain(content.name, form.MAX_NAME)
    _keep_standing(change, member, content.keys, is_owner=True)
    # All other members wait to be admitted with their keys.
    memberships.update(all_data=False)
    change.organization.invitations.all().delete()
    change.give_access(member, is_owner=True)
    change.note(Action.ROSTER_FOUNDED, change.organization.url)


def invite(
    change: RosterChange, body: form.EntryBody, content: form.Invite[str], digest: bytes
) -> None:
    """Open a seat, and send its invitation to the address.

    Raises:
        BadInput: ``invalid_entry``.
        Conflict: ``already_member``.
    """
    now = int(time.time())
    wrong = ""
    if content.expires <= max(now, body.time):
        wrong = "the invitation has already expired"
    if content.expires > now + _LONGEST_INVITATION:
        wrong = "an invitation is for 7 days at most"
    if wrong:
        apart = body.time - now
        hint = f"set the clock of the proxy's machine: it is {how_far(apart)} the API's"
        raise BadInput(wrong, code="invalid_entry", hint=hint if abs(apart) > 60 else "")
    try:
        validate_email(plain(content.name, form.MAX_NAME))
    except ValidationError:
        raise BadInput(
            "an invitation is for an e-mail address",
            code="invalid_entry",
            hint="check the address: it looks like grace@example.org",
        ) from None
    member = ids.to_text(content.member) if content.member else None
    identifier = ids.to_text(content.id)
    # Also by an invitation of another organization.
    require(not Seat.objects.filter(pk=identifier).exists(), "an invitation's id is taken")
    if member is None:
        _refuse_members(change, content.name)
    else:
        known = change.state.member(content.member)
        require(
            known is not None and known.type == form.PERSON, "nobody with this id was ever a member"
        )
    earlier = of_address(change.organization.invitations.all(), content.name)
    change.end_invitations(earlier.values_list("pk", flat=True))
    Seat.objects.create(
        pk=identifier,
        organization=change.organization,
        digest=digest,
        member=member,
        expires=content.expires,
        answer_key=content.answer_key,
    )
    change.invited.append(
        Invitation.objects.create(
            pk=identifier,
            organization=change.organization,
            email=content.name,
            role=Membership.Role.MEMBER,
            invited_by=change.caller,
            expires=moment(content.expires),
        )
    )
    change.note(Action.MEMBER_INVITED, change.organization.url)


def _refuse_members(change: RosterChange, address: str) -> None:
    standing = change.organization.standings.filter(present=True).values("member")
    if User.objects.with_email(address).filter(pk__in=standing).exists():
        raise Conflict(
            "the address already belongs to a member",
            code="already_member",
            hint="to admit a member with new keys, name the member in the invitation",
        )


def admit(
    change: RosterChange,
    body: form.EntryBody,
    content: form.MemberStanding[str],
    before: Member | None,
) -> None:
    """Apply the complete state of a member who joins, or whose rights or keys change.

    Args:
        before: the previous state; for a removed member, the last.

    Raises:
        BadInput: ``invalid_entry``.
        Conflict: ``invitation_over``.
    """
    member = ids.to_text(content.member)
    stood = before if before is not None and before.present else None
    if content.invitation:
        _require_answered(change, content)
    elif stood is None or content.keys not in (b"", stood.keys):
        _require_way_in(change, body, content, is_in=stood is not None)
    is_owner = content.role == form.OWNER
    if stood is not None and stood.owns and not is_owner:
        _end_invitations_of(change, content.member)
    keys = content.keys or (before.keys if before is not None else b"")
    _keep_standing(change, member, keys, is_owner=is_owner)
    _keep_rights(change, member, content)
    joins = Action.MEMBER_JOINED if stood is None else Action.MEMBER_CHANGED
    change.note(joins, ids.reference("users", member))


def _require_way_in(
    change: RosterChange, body: form.EntryBody, content: form.MemberStanding[str], *, is_in: bool
) -> None:
    """Check the origin of the keys of a member without an invitation.

    Raises:
        BadInput: ``invalid_entry``.
    """
    member = ids.to_text(content.member)
    if content.type == form.SERVICE:
        made = Service.objects.filter(pk=member, organization=change.organization)
        require(made.exists(), "no service with this id was created")
        return
    is_by_member = is_in and content.member == body.actor
    # A user whom the operator made an owner is admitted with the keys of a lost owner.
    recovers = member == change.caller.pk and _is_owner_here(change, member)
    require(is_by_member or recovers, "this member has not answered an invitation")


def _is_owner_here(change: RosterChange, member: str) -> bool:
    owners = Membership.objects.filter(role=Membership.Role.OWNER, user=member)
    return owners.filter(organization=change.organization).exists()


def _require_answered(change: RosterChange, content: form.MemberStanding[str]) -> None:
    """
    Raises:
        Conflict: ``invitation_over``.
        BadInput: ``invalid_entry``; the answer does not match the entry.
    """
    seat = Seat.objects.get(pk=ids.to_text(content.invitation))
    if seat.over:
        raise Conflict(
            "the invitation is over: declined, or replaced by another",
            code="invitation_over",
            hint="create a new invitation",
        )
    given = answer_of(seat)
    require(given is not None, "the invitation was not answered")
    assert given is not None
    stated = (content.member, content.keys, content.anchor, content.proof)
    answered = (given.member, given.keys, given.anchor, given.proof)
    require(stated == answered, "the invitation was answered by another person, or with other keys")
    change.end_invitations([seat.pk])


def _keep_standing(change: RosterChange, member: str, keys: bytes, *, is_owner: bool) -> None:
    Standing.objects.update_or_create(
        organization=change.organization,
        member=member,
        defaults={"present": True, "is_owner": is_owner, "keys": keys},
    )


def _keep_rights(change: RosterChange, member: str, content: form.MemberStanding[str]) -> None:
    plain(content.name, form.MAX_NAME)
    expires = moment(content.expires) if content.expires else None
    if content.type == form.SERVICE:
        Service.objects.filter(pk=member).update(expires=expires)
    Shared.objects.filter(organization=change.organization, member=member).delete()
    Shared.objects.bulk_create(
        Shared(
            organization=change.organization,
            member=member,
            dataset=ids.to_text(share.dataset),
            schema=schema,
            writes=share.right == form.WRITER,
        )
        for share in content.shares
        for schema in _single(share)
    )
    is_owner = content.role == form.OWNER
    change.give_access(member, is_owner=is_owner)
    if not is_owner:
        kept = {ids.to_text(share.dataset) for share in content.shares}
        grants = StoredGrant.objects.filter(organization=change.organization, member=member)
        grants.exclude(dataset__in=kept).delete()


def _single(share: form.Share) -> list[str | None]:
    """The schemas that a share names; a single None for all schemas."""
    return [ids.to_text(schema) for schema in share.schemas] or [None]


def concern(change: RosterChange, before: Member | None, member: bytes) -> None:
    """Note the datasets for which a member needs a grant after a change of standing."""
    after = change.state.member(member)
    assert after is not None, "an entry has just said it"
    for name in change.datasets_with_keys():
        dataset = ids.from_text(name)
        known = before is not None and before.keys == after.keys
        reached = before.reads(dataset) if before is not None and known else NOTHING
        if not reached.contains(after.reads(dataset)):
            change.concerned.add((name, ids.to_text(member)))


def remove(change: RosterChange, content: form.Remove) -> None:
    """Remove a member, or withdraw an invitation."""
    named = ids.to_text(content.id)
    member = change.state.member(content.id)
    if member is None:
        change.end_invitations([named])
        change.note(Action.INVITATION_WITHDRAWN, change.organization.url)
        return
    if member.owns:
        _end_invitations_of(change, content.id)
    of_member = {"organization": change.organization, "member": named}
    Standing.objects.filter(**of_member).update(present=False)
    Shared.objects.filter(**of_member).delete()
    StoredGrant.objects.filter(**of_member).delete()
    change.take_access(named)
    if member.type == form.SERVICE:
        Service.objects.filter(pk=named).delete()
        User.objects.filter(pk=named).update(is_active=False)
    change.note(Action.MEMBER_REMOVED, ids.reference("users", named))


def _end_invitations_of(change: RosterChange, inviter: bytes) -> None:
    change.end_invitations(
        ids.to_text(invitation.content.id)
        for invitation in change.state.invitations.values()
        if invitation.inviter == inviter and invitation.open
    )
