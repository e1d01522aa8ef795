"""Entries about people and services: who founds, is invited, becomes a member, and goes.

What is refused here is what readers of the roster would not let count, so that no member stops the
others with an entry that changes nothing.
"""

from __future__ import annotations

import time

from django.core.exceptions import ValidationError
from django.core.validators import validate_email

from encrypted_records.errors import BadInput, Conflict, NotAllowed
from encrypted_records.model import ids, public_keys
from encrypted_records.model import roster as form
from encrypted_records.model.roster import EntryBody
from encrypted_records.server import signatures
from encrypted_records.server.accounts.models import User, of_address
from encrypted_records.server.datasets.models import Schema
from encrypted_records.server.organizations import answers
from encrypted_records.server.organizations.audit import Action
from encrypted_records.server.organizations.models import Invitation, Membership
from encrypted_records.server.organizations.roster_change import (
    Change,
    invalid,
    moment,
    plain,
    require,
)
from encrypted_records.server.organizations.roster_tables import (
    Seat,
    Service,
    Shared,
    Standing,
    StoredGrant,
)

#: An invitation ends within 7 days of a clock that may differ from ours by one.
_LONGEST_INVITATION = 8 * 86_400
_OVER = "the invitation is over: used, withdrawn, declined, expired, or of somebody who left"


def found(change: Change, body: EntryBody, content: form.Found[str]) -> None:
    """The first entry: its signer is the first owner, and reaches everything.

    Raises:
        BadInput: ``invalid_entry``.
        NotAllowed: ``owners_only``; the caller is no owner at the API.
        Conflict: ``has_records``; nobody signed them, so that a roster would end their schemas.
    """
    if Schema.objects.filter(dataset__organization=change.organization, version__gt=0).exists():
        raise Conflict(
            "the organization has records that were stored before it had a roster",
            code="has_records",
            hint="it goes on without one; to share, store the records in a new organization",
        )
    member = ids.to_text(body.actor)
    require(member == change.caller.pk, "the first entry is somebody else's")
    memberships = Membership.objects.filter(organization=change.organization)
    if not memberships.filter(user=member, role=Membership.Role.OWNER).exists():
        raise NotAllowed("only owners of the organization may do this", code="owners_only")
    change.claim_keys(member, content.keys)
    Standing.objects.create(
        organization=change.organization,
        member=member,
        is_service=False,
        is_owner=True,
        name=plain(content.name, form.MAX_NAME),
        keys=content.keys,
        anchor=b"",
    )
    # Everybody else waits to be admitted, under keys of their own.
    memberships.update(all_data=False)
    change.organization.invitations.all().delete()
    change.give_access(member, is_owner=True)
    change.note(Action.ROSTER_FOUNDED, change.organization.url)


def invite(change: Change, body: EntryBody, content: form.Invite[str], digest: bytes) -> None:
    """Open a seat, and have its invitation written to the address.

    Raises:
        BadInput: ``invalid_entry``.
        NotAllowed: ``owners_only``.
        Conflict: ``already_member``.
    """
    change.require_owner(body)
    now = int(time.time())
    require(content.expires > max(now, body.time), "the invitation has expired already")
    require(content.expires <= now + _LONGEST_INVITATION, "an invitation is for 7 days at most")
    require(public_keys.signs_alone(content.answer_key), "the answer key cannot be used")
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
    _require_shares(change, content.shares)
    taken = Seat.objects.filter(pk=identifier).exists() or change.standing(identifier) is not None
    require(not taken, "an invitation's id is taken")
    if member is None:
        _refuse_members(change, content.name)
    else:
        known = change.standing(member)
        require(known is not None and not known.is_service, "nobody of that id was ever a member")
    earlier = of_address(change.organization.invitations.all(), content.name)
    change.end_invitations(
        Seat.objects.filter(pk__in=list(earlier.values_list("pk", flat=True)), over=False),
        by_entry=False,
    )
    earlier.delete()
    Seat.objects.create(
        pk=identifier,
        organization=change.organization,
        digest=digest,
        actor=ids.to_text(body.actor),
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


def _refuse_members(change: Change, address: str) -> None:
    standing = change.organization.standings.filter(present=True).values("member")
    if User.objects.with_email(address).filter(pk__in=standing).exists():
        raise Conflict(
            "the address is a member's already",
            code="already_member",
            hint="to let a member in under new keys, name the member in the invitation",
        )


def admit(change: Change, body: EntryBody, content: form.Standing[str]) -> None:
    """Take in the whole standing of a member: one who comes in, or whose rights or keys change.

    Raises:
        BadInput: ``invalid_entry``.
        NotAllowed: ``owners_only``.
        Conflict: ``invitation_over``, ``last_owner``.
    """
    change.require_owner(body)
    member = ids.to_text(content.member)
    before = change.standing(member)
    is_in = before is not None and before.present
    is_service, is_owner = content.type == form.SERVICE, content.role == form.OWNER
    require(before is None or before.is_service == is_service, "a person is no service")
    require(not (is_owner and content.shares), "owners have all rights, and no shares")
    require(not (is_service and (is_owner or content.invitation)), "a service is made, no owner")
    # The words make a member. That somebody becomes an owner is said by a later entry.
    require(not (is_owner and content.invitation), "an invitation makes no owner")
    no_seat = not Seat.objects.filter(pk=member).exists()
    require(no_seat, "a member's id is that of an invitation")
    _require_shares(change, content.shares)
    keys = _keys_after(change, content, before if is_in else None)
    known = before is not None and is_in and bytes(before.keys) == keys
    if content.invitation:
        _take_seat(change, body, content)
    elif not known:
        _require_way_in(change, body, content, is_in=is_in)
    if before is not None and is_in and before.is_owner and not is_owner:
        change.keep_an_owner(member)
        _end_invitations_of(change, member)
    if not is_in:
        present = change.organization.standings.filter(present=True).count()
        require(present < form.MAX_MEMBERS, f"an organization has at most {form.MAX_MEMBERS}")
    reached = _reached(change, before if is_in else None)
    _keep(change, content, keys, before)
    _concern(change, member, content, reached if known else set())
    joins = Action.MEMBER_CHANGED if is_in else Action.MEMBER_JOINED
    change.note(joins, ids.reference("users", member))


def _keys_after(change: Change, content: form.Standing[str], before: Standing | None) -> bytes:
    """The keys of a member from this entry on."""
    stated = (content.keys, content.anchor, content.proof)
    if not any(stated):
        require(before is not None, "keys are left out of somebody who is not in")
        assert before is not None
        return bytes(before.keys)
    require(all(stated), "keys, anchor and proof come together")
    proved = form.proof_message(change.found, content.member, content.keys, content.anchor)
    require(signatures.is_by(content.keys, content.proof, proved), "keys come without a proof")
    change.claim_keys(ids.to_text(content.member), content.keys)
    return content.keys


def _require_way_in(
    change: Change, body: EntryBody, content: form.Standing[str], *, is_in: bool
) -> None:
    """Check how the API comes to know somebody's keys who was not invited.

    Raises:
        BadInput: ``invalid_entry``.
    """
    member = ids.to_text(content.member)
    if content.type == form.SERVICE:
        made = Service.objects.filter(pk=member, organization=change.organization)
        require(made.exists(), "no service of that id was made")
        return
    own = is_in and content.member == body.actor
    # Whom the operator made an owner comes in by the keys of one who was lost.
    recovers = member == change.caller.pk and _is_owner_here(change, member)
    require(own or recovers, "this member has answered no invitation")


def _is_owner_here(change: Change, member: str) -> bool:
    owners = Membership.objects.filter(role=Membership.Role.OWNER, user=member)
    return owners.filter(organization=change.organization).exists()


def _take_seat(change: Change, body: EntryBody, content: form.Standing[str]) -> None:
    """
    Raises:
        Conflict: ``invitation_over``.
        BadInput: ``invalid_entry``; what was answered is something else.
    """
    seat = Seat.objects.filter(
        pk=ids.to_text(content.invitation), organization=change.organization
    ).first()
    if seat is None:
        raise invalid("there is no such invitation")
    if seat.over or seat.expires <= body.time or not change.is_owner(seat.actor):
        raise Conflict(_OVER, code="invitation_over", hint="invite again")
    member = ids.to_text(content.member)
    fits = change.standing(member) is None if seat.member is None else seat.member == member
    require(fits, "the invitation is for somebody else")
    given = answers.of(seat)
    require(given is not None, "the invitation was not answered")
    assert given is not None
    stated = (content.member, content.keys, content.anchor, content.proof)
    answered = (given.member, given.keys, given.anchor, given.proof)
    require(stated == answered, "the invitation was answered by somebody else, or other keys")
    change.end_invitations([seat], by_entry=True)


def _require_shares(change: Change, shares: list[form.Share]) -> None:
    """
    Raises:
        BadInput: ``invalid_entry``; they name what is not the organization's.
    """
    once = {(share.dataset, share.right) for share in shares}
    once_each = all(len(set(share.schemas)) == len(share.schemas) for share in shares)
    require(len(once) == len(shares) and once_each, "shares name something twice")
    datasets = {ids.to_text(share.dataset) for share in shares}
    keys = change.organization.dataset_keys.filter(dataset__in=datasets)
    own = set(keys.values_list("dataset", flat=True))
    require(datasets <= own, "a share names a dataset that the roster does not have")
    single = {
        (ids.to_text(share.dataset), ids.to_text(schema))
        for share in shares
        for schema in share.schemas
    }
    if single:
        places = change.organization.places.filter(schema__in=[schema for _, schema in single])
        there = set(places.values_list("dataset", "schema"))
        require(single <= there, "a share names a schema that is not placed in its dataset")


def _reached(change: Change, before: Standing | None) -> set[tuple[str, str | None]]:
    """(dataset, schema or None for all) that somebody read until now."""
    if before is None:
        return set()
    if before.is_owner:
        return {(dataset, None) for dataset in change.datasets_with_keys()}
    return change.shares_of(before.member)


def _keep(
    change: Change, content: form.Standing[str], keys: bytes, before: Standing | None
) -> None:
    member = ids.to_text(content.member)
    expires = moment(content.expires) if content.expires else None
    is_owner, is_service = content.role == form.OWNER, content.type == form.SERVICE
    stated = {
        "present": True,
        "is_owner": is_owner,
        "name": plain(content.name, form.MAX_NAME),
        "keys": keys,
        "expires": expires,
    }
    if content.anchor or before is None:
        stated["anchor"] = content.anchor
    Standing.objects.update_or_create(
        organization=change.organization,
        member=member,
        defaults=stated,
        create_defaults=stated | {"is_service": is_service},
    )
    if is_service:
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
    change.give_access(member, is_owner=is_owner)
    if not is_owner:
        kept = {ids.to_text(share.dataset) for share in content.shares}
        own = StoredGrant.objects.filter(organization=change.organization, member=member)
        own.exclude(dataset__in=kept).delete()


def _single(share: form.Share) -> list[str | None]:
    """The schemas that a share names; None alone for all of them."""
    return [ids.to_text(schema) for schema in share.schemas] or [None]


def _concern(
    change: Change,
    member: str,
    content: form.Standing[str],
    reached: set[tuple[str, str | None]],
) -> None:
    """Remember of which datasets the member now needs a grant."""
    with_keys = change.datasets_with_keys()
    after: set[tuple[str, str | None]] = (
        {(dataset, None) for dataset in with_keys}
        if content.role == form.OWNER
        else change.shares_of(member)
    )
    change.concerned |= {
        (dataset, member)
        for dataset, schema in after
        if dataset in with_keys and not {(dataset, schema), (dataset, None)} & reached
    }


def remove(change: Change, body: EntryBody, content: form.Remove) -> None:
    """Put a member out, or withdraw an invitation.

    Raises:
        BadInput: ``invalid_entry``.
        NotAllowed: ``owners_only``.
        Conflict: ``last_owner``.
    """
    named = ids.to_text(content.id)
    seat = Seat.objects.filter(pk=named, organization=change.organization, ended=False).first()
    if seat is not None:
        change.require_owner(body)
        change.end_invitations([seat], by_entry=True)
        change.note(Action.INVITATION_WITHDRAWN, change.organization.url)
        return
    standing = change.present(named)
    if standing is None:
        raise invalid("an entry removes somebody who is not in, or an invitation that is over")
    if content.id != body.actor:
        change.require_owner(body)
    if standing.is_owner:
        change.keep_an_owner(named)
        _end_invitations_of(change, named)
    own = {"organization": change.organization, "member": named}
    Standing.objects.filter(pk=standing.pk).update(present=False)
    Shared.objects.filter(**own).delete()
    StoredGrant.objects.filter(**own).delete()
    change.take_access(named)
    if standing.is_service:
        Service.objects.filter(pk=named).delete()
        User.objects.filter(pk=named).update(is_active=False)
    change.note(Action.MEMBER_REMOVED, ids.reference("users", named))


def _end_invitations_of(change: Change, member: str) -> None:
    change.end_invitations(
        Seat.objects.filter(organization=change.organization, actor=member, ended=False),
        by_entry=True,
    )
