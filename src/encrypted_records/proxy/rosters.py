"""Remember each organization's roster as this machine has seen it, across restarts.

If an API later shows fewer entries, or another continuation, that is an error and not a changed
list of people. The memory is separate for each user: a roster shown to one user proves nothing to
another. The first roster is kept as well, for users to check.
:mod:`encrypted_records.index.roster.belief` decides which roster is accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from sqlite3 import Connection

import msgspec

from encrypted_records.crypto.keys import Keyring
from encrypted_records.index.roster import belief
from encrypted_records.index.roster.roster import Roster
from encrypted_records.model import roster as form
from encrypted_records.proxy.disk import Database

_TABLES = """
CREATE TABLE IF NOT EXISTS roster (
    user BLOB NOT NULL,
    organization BLOB NOT NULL,
    found BLOB NOT NULL,
    number INTEGER NOT NULL,
    digest BLOB NOT NULL,
    PRIMARY KEY (user, organization)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS entry (
    user BLOB NOT NULL,
    organization BLOB NOT NULL,
    number INTEGER NOT NULL,
    body BLOB NOT NULL,
    signature BLOB NOT NULL,
    openings BLOB NOT NULL,
    PRIMARY KEY (user, organization, number)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS founding (
    user BLOB NOT NULL,
    organization BLOB NOT NULL,
    body BLOB NOT NULL,
    signature BLOB NOT NULL,
    openings BLOB NOT NULL,
    PRIMARY KEY (user, organization)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS first_shown (
    user BLOB NOT NULL,
    organization BLOB NOT NULL,
    members INTEGER NOT NULL,
    number INTEGER NOT NULL,
    time INTEGER NOT NULL,
    words TEXT NOT NULL,
    PRIMARY KEY (user, organization)
) WITHOUT ROWID
"""
_ASK = "SELECT found, number, digest FROM roster WHERE user = ? AND organization = ?"
# The newest entry never becomes older, and no organization replaces another.
_REMEMBER = """
INSERT INTO roster (user, organization, found, number, digest) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (user, organization) DO UPDATE SET number = excluded.number, digest = excluded.digest
WHERE excluded.number > roster.number AND excluded.found = roster.found
"""
_SHOWN_FIRST = "INSERT OR IGNORE INTO first_shown VALUES (?, ?, ?, ?, ?, ?)"
_SHOWN = "SELECT members, number, time, words FROM first_shown WHERE user = ? AND organization = ?"
_KNOWN = "SELECT organization FROM roster WHERE user = ? ORDER BY organization"
_USERS = "SELECT user FROM roster WHERE organization = ? ORDER BY user"
# An API token may be shown less of an entry than its user.
_KEEP_ENTRY = """
INSERT INTO entry (user, organization, number, body, signature, openings) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (user, organization, number) DO UPDATE
SET body = excluded.body, signature = excluded.signature, openings = excluded.openings
WHERE (excluded.body, excluded.signature) != (entry.body, entry.signature)
OR length(excluded.openings) > length(entry.openings)
"""
_ENTRIES = """
SELECT body, signature, openings FROM entry WHERE user = ? AND organization = ? AND number >= ?
ORDER BY number
"""
_KEEP = """
INSERT OR IGNORE INTO founding (user, organization, body, signature, openings)
VALUES (?, ?, ?, ?, ?)
"""
_KEPT = "SELECT body, signature, openings FROM founding WHERE user = ? AND organization = ?"
_DROP = "DELETE FROM founding WHERE user = ? AND organization = ?"


class Rosters:
    """Safe to use from several threads."""

    def __init__(self, path: Path, reference: Rosters | None = None) -> None:
        """
        Args:
            reference: another memory, which is not changed: the rosters remembered here must be
                prefixes of its rosters.

        Raises:
            Startup: the file is damaged, or cannot be opened.
        """
        self._reference = reference
        self._database = Database(
            path,
            _TABLES,
            # A roster that cannot be remembered must not be trusted.
            code="proxy_store_failed",
            message="this proxy's memory of organizations' rosters cannot be read or written",
            # Entries from before there were openings are of a format that is refused by name.
            later={
                table: {"openings": "BLOB NOT NULL DEFAULT x'90'"}
                for table in ("entry", "founding")
            },
            loss="the proxy then no longer notices if the API shows an earlier state of an"
            " organization; nothing else is lost",
        )

    def get(self, user: bytes, organization: bytes) -> belief.Remembered | None:
        """The remembered roster of an organization for one of its users; 16-byte identifiers.

        Raises:
            OutOfSpace, Unavailable: the disk cannot be read.
        """
        with self._database.asking() as database:
            return _get(database, user, organization)

    def remember(self, user: bytes, roster: Roster) -> None:
        """Keep a roster's head, durable on return. A founder, or a user who answers an invitation,
        calls this before the API receives the entry or answer.

        Raises:
            RosterOlder: it lacks remembered entries; nothing has changed.
            RosterForked: as that; or it is not proved to be a prefix of the roster in the other
                memory.
            OutOfSpace, Unavailable: the disk cannot be written.
        """
        if self._reference is not None:
            self._reference.check_beginning(user, roster)
        seen = belief.remember(roster)
        with self._database.writing() as database:
            # In one transaction: if two continuations are checked at once, only one is kept.
            before = _get(database, user, roster.organization)
            if before is not None:
                belief.check_memory(roster, before)
            row = (user, roster.organization, seen.found, seen.number, seen.digest)
            database.execute(_REMEMBER, row)
            if before is None:
                first = belief.describe(roster)
                shown = (first.members, first.number, first.time, first.words)
                database.execute(_SHOWN_FIRST, (user, roster.organization, *shown))

    def check_beginning(self, user: bytes, roster: Roster) -> None:
        """Check that a roster is a prefix or a continuation of the remembered roster.

        Raises:
            RosterForked: it is neither, or the kept entries do not prove it.
            OutOfSpace, Unavailable: the disk cannot be read.
        """
        seen = self.get(user, roster.organization)
        if seen is None:
            return
        if roster.found != seen.found or roster.number >= seen.number:
            belief.check_memory(roster, seen)
            return
        kept = self.kept_entries(user, roster.organization, roster.number)
        if not kept or form.entry_digest(kept[0]) != roster.head.digest:
            raise belief.RosterForked(
                "the roster is not shown to be an earlier state of what this proxy has seen"
            )

    def users_of(self, organization: bytes) -> list[bytes]:
        """The users who were shown a roster of an organization."""
        return [row[0] for row in self._database.rows(_USERS, organization)]

    def has_seen(self, user: bytes, organization: bytes) -> bool:
        """Whether a user was ever shown a roster of an organization."""
        seen = self._reference is not None and self._reference.has_seen(user, organization)
        return seen or self.get(user, organization) is not None

    def first_shown(self, user: bytes, organization: bytes) -> belief.RosterSummary | None:
        """The roster summary that a user's proxy was shown on first use; None if none was ever
        shown.
        """
        row = self._database.row(_SHOWN, user, organization)
        return None if row is None else belief.RosterSummary(*row)

    def organizations(self, user: bytes) -> list[bytes]:
        """The organizations whose roster a user's proxy has seen."""
        return [row[0] for row in self._database.rows(_KNOWN, user)]

    def keep_entries(
        self, user: bytes, organization: bytes, entries: Sequence[tuple[int, form.RosterEntry]]
    ) -> None:
        """Keep entries of a remembered roster by number, so that their content can be shown after
        the API no longer shows them.

        Raises:
            OutOfSpace, Unavailable: the disk cannot be written.
        """
        with self._database.writing() as database:
            database.executemany(
                _KEEP_ENTRY,
                [(user, organization, number, *_columns(entry)) for number, entry in entries],
            )

    def kept_entries(self, user: bytes, organization: bytes, first: int) -> list[form.RosterEntry]:
        """The kept entries from a number on, in order."""
        rows = self._database.rows(_ENTRIES, user, organization, first)
        return [_entry(row) for row in rows]

    def replace(self, user: bytes, roster: Roster) -> None:
        """Forget the remembered roster of an organization, and remember an older roster, or none,
        instead.

        Raises:
            OutOfSpace, Unavailable: the disk cannot be written; nothing has changed.
        """
        seen = belief.remember(roster)
        place = (user, roster.organization)
        with self._database.writing() as database:
            database.execute("DELETE FROM roster WHERE user = ? AND organization = ?", place)
            database.execute(
                "DELETE FROM entry WHERE user = ? AND organization = ? AND number > ?",
                (*place, seen.number),
            )
            if seen.number:
                database.execute(_REMEMBER, (*place, seen.found, seen.number, seen.digest))

    def believe(
        self, roster: Roster, user: bytes, keyring: Keyring, *, older_keys: bool = False
    ) -> belief.Believed:
        """Identify the user in a roster, if it is the user's own, and remember the roster.

        Args:
            older_keys: as for :func:`encrypted_records.index.roster.belief.believe`.

        Raises:
            RosterOlder, RosterUnknown, IdentityReplaced, NotAllowed: as there. The roster of a
                remembered organization is kept even if its user is no longer a member.
            OutOfSpace, Unavailable: the disk cannot be written.
        """
        remembered = self.get(user, roster.organization)
        if remembered is not None:
            self.remember(user, roster)
        believed = belief.believe(roster, user, keyring, remembered, older_keys=older_keys)
        if remembered is None:
            self.remember(user, roster)
        return believed

    def weigh(
        self, roster: Roster, user: bytes, keyring: Keyring, *, older_keys: bool = False
    ) -> belief.Believed:
        """Like :meth:`believe`, but remember nothing.

        Raises:
            RosterOlder, RosterUnknown, IdentityReplaced, NotAllowed, OutOfSpace, Unavailable: as
                there.
        """
        if self._reference is not None:
            self._reference.check_beginning(user, roster)
        remembered = self.get(user, roster.organization)
        return belief.believe(roster, user, keyring, remembered, older_keys=older_keys)

    def keep_founding(
        self, user: bytes, organization: bytes, entry: form.RosterEntry
    ) -> form.RosterEntry:
        """Keep a first entry before it is sent to the API, durable on return. Returns the kept
        entry, which may be an earlier one.

        Raises:
            OutOfSpace, Unavailable: the disk cannot be written.
        """
        with self._database.writing() as database:
            database.execute(_KEEP, (user, organization, *_columns(entry)))
            row = database.execute(_KEPT, (user, organization)).fetchone()
        return _entry(row)

    def founding(self, user: bytes, organization: bytes) -> form.RosterEntry | None:
        """A first entry that the API may or may not have."""
        row = self._database.row(_KEPT, user, organization)
        return None if row is None else _entry(row)

    def drop_founding(self, user: bytes, organization: bytes) -> None:
        """Delete the first entry: the organization is founded, by this entry or by another."""
        self._database.run(_DROP, user, organization)

    def close(self) -> None:
        self._database.close()
        if self._reference is not None:
            self._reference.close()


def _columns(entry: form.RosterEntry) -> tuple[bytes, bytes, bytes]:
    return entry.body, entry.signature, msgspec.msgpack.encode(entry.openings)


def _entry(row: tuple[bytes, bytes, bytes]) -> form.RosterEntry:
    body, signature, openings = row
    return form.RosterEntry(body, signature, msgspec.msgpack.decode(openings, type=list[bytes]))


def _get(database: Connection, user: bytes, organization: bytes) -> belief.Remembered | None:
    row = database.execute(_ASK, (user, organization)).fetchone()
    return None if row is None else belief.Remembered(*row)
