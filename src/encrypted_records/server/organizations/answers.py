"""Answers of invited users: their public keys, signed by a key that is derived from the twelve
words.

The API cannot make an answer, because it does not have the words. It refuses an answer that it
cannot verify, so that the invitation stays open for the right one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from django.db import transaction

from encrypted_records.errors import Conflict, NotFound
from encrypted_records.model import ids, wire
from encrypted_records.model import roster as form
from encrypted_records.model.roster import Answer
from encrypted_records.server import signatures
from encrypted_records.server.accounts.models import User, of_address
from encrypted_records.server.db.databases import reading_stored
from encrypted_records.server.organizations.models import Invitation, Organization
from encrypted_records.server.organizations.roster_change import require
from encrypted_records.server.organizations.roster_tables import Entry, Seat, Standing


def of(seat: Seat) -> Answer | None:
    """The answer to an invitation."""
    if seat.answer is None:
        return None
    with reading_stored("an answer to an invitation"):
        return wire.decode_one(bytes(seat.answer), Answer)


def give(user: User, invitation_id: str, answer: Answer) -> bool:
    """Store the answer of an invited user, replacing an earlier one; returns whether it is new.

    Raises:
        NotFound: no invitation of that id waits for the user.
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


def own(user: User, invitation_id: str) -> Answer:
    """The answer that the user has given.

    Raises:
        NotFound: nothing, or there is no such invitation.
    """
    seat = Seat.objects.filter(pk=_mine(user, invitation_id).pk).first()
    given = None if seat is None else of(seat)
    if given is None:
        raise NotFound("this invitation has no answer")
    return given


def waiting(organization: Organization) -> Iterator[Answer]:
    """All answers that no entry has admitted yet, for owners."""
    for seat in organization.seats.filter(over=False).exclude(answer=None).order_by("pk"):
        given = of(seat)
        if given is not None:
            yield given


def decline(invitation: Invitation) -> None:
    """The invited does not want to."""
    with transaction.atomic():
        Seat.objects.filter(pk=invitation.pk).update(over=True, answer=None)
        invitation.delete()


def _mine(user: User, invitation_id: str) -> Invitation:
    """An invitation of the user's address, also one that has expired."""
    own = of_address(Invitation.objects.all(), user.email)
    found = own.filter(pk=ids.from_path(invitation_id)).first()
    if found is None:
        raise NotFound("this does not exist, or you cannot reach it")
    return found


def _require_right(user: User, seat: Seat, answer: Answer) -> None:
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
