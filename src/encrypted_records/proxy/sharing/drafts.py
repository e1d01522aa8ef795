"""A change of a roster before it is sent: entries that are signed, and grants that are sealed."""

from __future__ import annotations

from collections.abc import Mapping

from encrypted_records import runtime
from encrypted_records.crypto.keys import DatasetKey
from encrypted_records.errors import NotAllowed, NotFound
from encrypted_records.index.roster.access import require_owner
from encrypted_records.index.roster.drafts import sign_entry
from encrypted_records.index.roster.grants import seal_grant
from encrypted_records.model import roster as form
from encrypted_records.model.roster import Content, Grant, RosterEntry
from encrypted_records.proxy.sharing.reading import View
from encrypted_records.rules.roster_state import Member


class RosterDraft:
    """Entries that follow a roster's head, one after another, and grants beside them.

    ``roster`` is the roster with these entries, as readers will take them; ``now`` is in seconds
    since 1970. ``identity`` signs, and is the user's under the keys that the roster has: another
    one once an entry has changed these.
    """

    def __init__(self, view: View) -> None:
        self.view = view
        self.roster = view.roster.copy()
        self.identity = view.identity
        self.now = int(runtime.wall())
        self.entries: list[RosterEntry] = []
        self.grants: list[Grant] = []

    def require_owner(self) -> None:
        """
        Raises:
            NotAllowed: ``owners_only``; the user is not an owner any more.
        """
        require_owner(self.roster, self.view.user)

    def sign(self, content: Content) -> RosterEntry:
        """Add an entry; before one that gives a dataset the slug of another, one that frees it, so
        that who is not shown the new name sees that the old one is gone.

        Raises:
            NotAllowed, Conflict, BadInput: it would not count
                (:func:`encrypted_records.index.roster.drafts.sign_entry`).
        """
        if isinstance(content, form.DatasetName) and content.slug:
            for other in self.roster.datasets():
                epoch = self.roster.epoch(other.dataset)
                if other.slug == content.slug and other.dataset != content.dataset and epoch:
                    freed = form.DatasetName(
                        other.dataset, "", "", epoch.epoch, epoch.commitment, []
                    )
                    self._sign(freed)
        return self._sign(content)

    def _sign(self, content: Content) -> RosterEntry:
        entry = sign_entry(self.roster, self.identity, self.view.user, self.now, content)
        self.roster.append(entry)
        self.entries.append(entry)
        return entry

    def grant(self, member: bytes, dataset: bytes, keys: Mapping[int, DatasetKey]) -> None:
        """Add the keys of a dataset for what the roster, with the entries so far, lets a member
        read of it.

        Raises:
            NotAllowed, KeyMissing, TooLarge: as :func:`seal_grant`.
        """
        sealed = seal_grant(
            self.roster,
            self.identity,
            self.view.user,
            member=member,
            dataset=dataset,
            keys=keys,
        )
        self.grants.append(sealed)

    def standing(self, member: bytes) -> Member:
        """The state of a present member of the organization.

        Raises:
            NotFound: ``not_a_member``.
        """
        standing = self.roster.member(member)
        if standing is None or not standing.present:
            raise NotFound(
                "nobody in the organization has this id",
                code="not_a_member",
                hint="ers share list shows its members and their ids",
            )
        return standing

    @property
    def empty(self) -> bool:
        return not self.entries and not self.grants


def no_roster() -> NotAllowed:
    """An organization has no roster, and the user is none of its owners."""
    return NotAllowed(
        "the organization has no roster yet, and only an owner can found it",
        code="not_admitted",
        hint="ask an owner of the organization to share something with you",
    )
