"""Sign the next entry of a roster, and refuse beforehand what would not count."""

from __future__ import annotations

from encrypted_records.crypto.identity import Identity
from encrypted_records.errors import (
    BadInput,
    Conflict,
    ErsError,
    InvitationOver,
    KeysRefused,
    NotAllowed,
    TooLarge,
)
from encrypted_records.index.roster.roster import Roster
from encrypted_records.model import roster as form
from encrypted_records.model.roster import Content, EntryBody, FoundingEntry, RosterEntry
from encrypted_records.rules.roster_judging import Void


def sign_entry(
    roster: Roster, identity: Identity, actor: bytes, time: int, content: Content
) -> RosterEntry:
    """The entry that follows the roster's newest one. It is not taken in.

    Args:
        identity: that of ``actor``.
        time: in seconds since 1970.

    Raises:
        NotAllowed, Conflict, BadInput: it would not count; the code says why.
        RosterWithheld: it states a name that is not known here.
    """
    body = EntryBody(
        roster.organization, roster.number + 1, roster.head.digest, time, actor, content
    )
    encoded, openings = form.encode_entry_body(body)
    if len(encoded) > form.MAX_ENTRY_BYTES:
        raise TooLarge(f"an entry of a roster has at most {form.MAX_ENTRY_BYTES} bytes")
    entry = RosterEntry(encoded, identity.sign("roster", encoded), openings)
    if body.number > 1:
        void = roster.judge(entry, body)
        if void is not None:
            raise _refusal(void)
    else:
        assert isinstance(content, FoundingEntry), "a roster begins with its foundation"
    return entry


def _refusal(void: Void) -> ErsError:
    if void in (Void.RIGHT, Void.SIGNATURE):
        return NotAllowed(
            "the organization's roster does not allow you to do that",
            code="owners_only",
            hint="ask an owner of the organization; ers share list shows who they are",
        )
    if void is Void.LAST_OWNER:
        return Conflict(
            "the organization would be left without an owner",
            code="last_owner",
            hint="make another member an owner first",
        )
    if void is Void.INVITATION:
        return InvitationOver("the invitation is over, or is for another account")
    if void in (Void.KEYS, Void.PROOF):
        return KeysRefused("the member's public keys cannot be used")
    if void is Void.LIMIT:
        return TooLarge("the organization has reached the limit for these entries")
    return BadInput(f"the organization's roster cannot accept this: {void.value}")
