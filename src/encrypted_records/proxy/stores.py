"""The files of the proxy's folder that one process keeps open while it runs."""

from __future__ import annotations

from pathlib import Path

from encrypted_records.index.log.order import Order
from encrypted_records.index.roster.roster import Roster
from encrypted_records.proxy.jobs.store import JobStore
from encrypted_records.proxy.rosters import Rosters
from encrypted_records.proxy.saved_questions import QuestionStore
from encrypted_records.proxy.schemas.state import not_shown
from encrypted_records.proxy.schemas.store import Heads, LedgerStore
from encrypted_records.proxy.search.caches import DiskCache
from encrypted_records.proxy.sharing.reading import hidden_roster
from encrypted_records.proxy.spool import Spool
from encrypted_records.proxy.uploads.store import UploadStore
from encrypted_records.proxy.webhooks import WebhookStore


class Memory:
    """The remembered rosters and logs of all users of a proxy, to compare a copy with."""

    def __init__(self, folder: Path) -> None:
        """
        Args:
            folder: the proxy's folder.

        Raises:
            Startup: a file is damaged, or cannot be opened.
        """
        self._heads = Heads(folder / "heads.sqlite3")
        self._rosters = Rosters(folder / "rosters.sqlite3")

    def has_seen_roster(self, organization: bytes, roster: Roster | None) -> bool:
        """Whether a user was shown a roster of an organization before.

        Raises:
            RosterOlder: this roster is neither the remembered roster nor an earlier state of it.
            Unavailable: the disk cannot be read.
        """
        users = self._rosters.users_of(organization)
        if users and roster is None:
            raise hidden_roster()
        for user in users:
            self._rosters.check_beginning(user, roster or Roster(organization))
        return bool(users)

    def has_seen_log(self, schema: bytes, log: Order) -> bool:
        """Whether a user has seen a log of a schema before.

        Raises:
            LogBroken: this log is neither the remembered log nor proved to be an earlier state of
                it.
            Unavailable: the disk cannot be read.
        """
        users = self._heads.users_of(schema)
        if any(self._heads.lacks(user, schema, log) in ("forked", "unclear") for user in users):
            raise not_shown()
        return bool(users)

    def close(self) -> None:
        self._heads.close()
        self._rosters.close()


class Stores:
    """The files of the proxy's folder except the keyrings; docs/operations.md explains each."""

    def __init__(self, folder: Path, page_cache: int, *, forgetful: bool = False) -> None:
        """Open all files, or make them.

        Args:
            page_cache: budget of index pages, in bytes.
            forgetful: whether the remembered logs and rosters are not changed, and shorter ones are
                accepted: those read now are remembered in separate files of this process, and must
                be prefixes of the remembered ones.

        Raises:
            Startup: a file that must not be lost is damaged, or a file cannot be opened.
            OSError: the folder cannot be written.
        """
        memory = "stale-" if forgetful else ""
        self.heads = Heads(folder / "heads.sqlite3")
        self.rosters = Rosters(folder / "rosters.sqlite3")
        if forgetful:
            for left in folder.glob(f"{memory}*.sqlite3*"):
                left.unlink()
            self.heads = Heads(folder / f"{memory}heads.sqlite3", reference=self.heads)
            self.rosters = Rosters(folder / f"{memory}rosters.sqlite3", reference=self.rosters)
        self.ledgers = LedgerStore(folder / f"{memory}ledgers.sqlite3")
        self.pages = DiskCache(folder / "pages.sqlite3", page_cache)
        self.jobs = JobStore(folder / "jobs.sqlite3")
        self.uploads = UploadStore(folder / "uploads.sqlite3")
        self.questions = QuestionStore(folder / "questions.sqlite3")
        self.webhooks = WebhookStore(folder / "webhooks.sqlite3")
        self.spool = Spool(folder / "spool")

    def close(self) -> None:
        self.questions.close()
        for store in (
            *(self.jobs, self.uploads, self.heads, self.ledgers, self.pages),
            *(self.rosters, self.webhooks),
        ):
            store.close()
