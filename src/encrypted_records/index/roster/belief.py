"""Decide which roster a proxy accepts as its user's (docs/SPEC.md, section 15.9). Without I/O.

On first use the roster must show keys that the user's keyring derives, where only the user could
have put them: in its first entry, or with an anchor that only the user's root key makes. Afterwards
it must contain the entries seen before. So even a fresh proxy that has only a recovery phrase
refuses an organization that an API made up.
"""

from __future__ import annotations

from dataclasses import dataclass

from encrypted_records.crypto.identity import Identity
from encrypted_records.crypto.keys import Keyring
from encrypted_records.crypto.recovery import spelled
from encrypted_records.errors import IdentityReplaced, NotAllowed, RosterOlder, RosterUnknown
from encrypted_records.index.roster.roster import Roster
from encrypted_records.rules.roster_state import Member

#: Number of head words, by which two people notice that they are shown different rosters.
HEAD_WORDS = 8


@dataclass(frozen=True, slots=True)
class Remembered:
    """The part of a roster that a proxy remembers for each user: the digest of entry 1, and number
    and digest of the newest entry seen.
    """

    found: bytes
    number: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class Believed:
    """A roster that was verified as the user's, and the user's member in it.

    ``version`` is the version of the keyring whose keys the roster has; ``first_use`` says that
    nothing was remembered, so that the user must be shown a summary.
    """

    standing: Member
    version: int
    identity: Identity
    first_use: bool


@dataclass(frozen=True, slots=True)
class RosterSummary:
    """The summary of a roster that a user sees on first use: people and services, its newest entry,
    and the time of that entry (seconds since 1970, as stated by its actor).
    """

    members: int
    number: int
    time: int
    words: str


def remember(roster: Roster) -> Remembered:
    return Remembered(roster.found, roster.number, roster.head.digest)


def describe(roster: Roster) -> RosterSummary:
    return RosterSummary(len(roster.members()), roster.number, roster.head.time, head_words(roster))


def head_words(roster: Roster) -> str:
    """Eight words that are equal for all users who are shown the same roster."""
    return spelled(roster.head.digest, HEAD_WORDS)


class RosterForked(RosterOlder):
    """The roster is also not a prefix of the remembered roster."""


def check_memory(roster: Roster, remembered: Remembered) -> None:
    """Check that a roster contains its remembered part.

    Raises:
        RosterOlder: it ends earlier.
        RosterForked: it is another roster, or has different entries.
    """
    if roster.found != remembered.found:
        raise RosterForked("the API shows another organization under this one's id")
    if roster.digest_at(remembered.number) != remembered.digest:
        lacks = RosterOlder if roster.number < remembered.number else RosterForked
        raise lacks(
            "the organization's roster lacks an entry that this proxy has seen:"
            f" {remembered.number}"
        )


def believe(
    roster: Roster,
    member: bytes,
    keyring: Keyring,
    remembered: Remembered | None,
    *,
    older_keys: bool = False,
) -> Believed:
    """Identify the user in a roster, after verifying that the roster is the user's.

    Args:
        remembered: the remembered part of the roster; None on first use.
        older_keys: the user confirms that membership under an older version of the keyring is
            right. An attacker who has the older root key can fabricate a whole organization.

    Raises:
        RosterOlder: the roster lacks remembered entries.
        NotAllowed: ``not_admitted``: the user is not in it.
        IdentityReplaced: the roster was the user's, and now has other keys of the user.
        RosterUnknown: on first use, nothing proves that the roster is the user's.
    """
    if remembered is not None:
        check_memory(roster, remembered)
    standing = roster.member(member)
    if standing is None or not standing.present:
        raise not_admitted()
    identities = _identities(roster, member, keyring)
    version = _version_of(identities, standing.keys)
    if version is None and remembered is not None:
        raise IdentityReplaced(
            f"the organization's roster has other keys of yours since entry {standing.number}"
        )
    if version is None:
        raise RosterUnknown(
            "the organization's roster has keys of yours that are not this keyring's"
        )
    if remembered is None:
        _require_own(roster, standing, keyring, identities, version)
        if version != keyring.newest and not older_keys:
            raise RosterUnknown(
                f"the organization knows you by version {version} of your keyring, and the"
                f" newest is {keyring.newest}: anybody with the older key could have forged"
                " this roster",
                hint="if you trust the roster, confirm it once; your newest keys then replace the"
                " older ones",
            )
    return Believed(standing, version, identities[version], remembered is None)


def recognize(roster: Roster, keyring: Keyring) -> list[bytes]:
    """The ids of members, including removed members, that a roster proves to be the user of a
    keyring, by data that only that keyring could have made. :func:`believe` must still check each.
    """
    found = []
    for history in roster.histories():
        newest = history[-1]
        founded = newest.member == roster.founder and (
            _version_of(_identities(roster, newest.member, keyring), history[0].keys) is not None
        )
        if founded or _is_anchored(roster, newest, keyring):
            found.append(newest.member)
    return found


def _is_anchored(roster: Roster, standing: Member, keyring: Keyring) -> bool:
    place = (roster.organization, standing.member)
    return bool(standing.anchor) and any(
        root.anchor(*place, version).holds(standing.anchor, roster.found)
        for version, root in keyring.roots.items()
    )


def not_admitted() -> NotAllowed:
    return NotAllowed(
        "you are not in this organization's roster",
        code="not_admitted",
        hint="enter the words of your invitation with ers share accept; an owner's proxy then"
        " admits you",
    )


def _identities(roster: Roster, member: bytes, keyring: Keyring) -> dict[int, Identity]:
    return {
        version: root.identity(roster.organization, member, version)
        for version, root in sorted(keyring.roots.items(), reverse=True)
    }


def _version_of(identities: dict[int, Identity], keys: bytes) -> int | None:
    return next(
        (version for version, identity in identities.items() if identity.keys == keys), None
    )


def _require_own(
    roster: Roster,
    standing: Member,
    keyring: Keyring,
    identities: dict[int, Identity],
    version: int,
) -> None:
    founder = roster.member(roster.founder, 1)
    assert founder is not None, "a roster begins with its founder"
    if roster.founder == standing.member and _version_of(identities, founder.keys) is not None:
        return
    key = keyring.root(version).anchor(roster.organization, standing.member, version)
    if not standing.anchor or not key.holds(standing.anchor, roster.found):
        raise RosterUnknown("nothing in the organization's roster shows that you have joined it")
