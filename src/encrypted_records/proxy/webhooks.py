"""Webhooks: the change feed of a schema, sent to an address as it happens.

- Each delivery is signed according to Standard Webhooks (https://www.standardwebhooks.com):
  HMAC-SHA256 under a secret that was shown once, over the id of the delivery, its time and its
  body.
- A delivery is repeated with growing pauses until a 2xx answer, for a day; then the webhook is
  stopped, and continues from there when its owner resumes it. So each change is delivered at least
  once, across restarts.
- A webhook reads with an API token that its user provided, with the rights of that token, and under
  the user's keyring: it waits while the keyring is locked, and ends with a named error when it has
  lost the right to read.
- No log and no error contains its address, which may contain a secret of the receiver.
- ``webhooks.sqlite3`` in the proxy's folder reveals the user, the schema and the position of each
  webhook. Addresses, secrets and tokens in it are encrypted under the user's keyring (docs/SPEC.md,
  section 16).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import sqlite3
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec

from encrypted_records import errors, runtime
from encrypted_records.client.webhook_sender import WebhookSender
from encrypted_records.crypto.keys import Keyring
from encrypted_records.fair_queue import FairQueue
from encrypted_records.model import credentials
from encrypted_records.model.ids import new_id, reference, to_text
from encrypted_records.proxy.disk import Database
from encrypted_records.proxy.feed import Feed, FeedPage, WatchedSchema, parse_cursor, write_changes
from encrypted_records.proxy.http.messages import to_json
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.keyrings.store import Keyrings
from encrypted_records.proxy.process import WEBHOOKS, Background, Task
from encrypted_records.proxy.saved_questions import open_kept, pad, seal_kept

log = logging.getLogger(__name__)


# The store of webhooks.

_TABLE = """
CREATE TABLE IF NOT EXISTS webhook (
    id BLOB PRIMARY KEY,
    user BLOB NOT NULL,
    schema BLOB NOT NULL,
    sealed BLOB NOT NULL,
    status TEXT NOT NULL,
    reason TEXT NOT NULL,
    cursor TEXT,
    restarts INTEGER NOT NULL,
    tries INTEGER NOT NULL,
    failing_since REAL,
    delivered_at REAL
) WITHOUT ROWID;
"""
_COLUMNS = (
    "id, user, schema, sealed, status, reason, cursor, restarts, tries, failing_since, delivered_at"
)
#: Maximum number of webhooks per user.
_MOST_WEBHOOKS = 20
#: Suffix of the schema's id in the authenticated place.
_PLACE = b"webhook"


class Status(StrEnum):
    ACTIVE = "active"
    STOPPED = "stopped"


class WebhookTarget(msgspec.Struct, frozen=True, array_like=True):
    """The address and credentials of a webhook. None of it may be printed.

    Attributes:
        token: the API token for reading.
        secret: the key that signs deliveries.
        device: the id of the device that made the webhook; None if no device did.
    """

    url: str
    token: str
    secret: bytes
    device: str | None

    def __repr__(self) -> str:
        return "<Target>"


@dataclass(frozen=True, slots=True)
class StoredWebhook:
    """Attributes:
    reason: the code of the last error; the reason for the stop, if it is stopped.
    cursor: position after the last delivery; None if every record is to be delivered.
    restarts: whether the next delivery says that the consumer has to start again.
    tries: failures of the current delivery, and the time of the first (seconds since 1970).
    delivered_at: time of the last accepted delivery.
    """

    id: bytes
    user: bytes
    schema: bytes
    sealed: bytes
    status: Status = Status.ACTIVE
    reason: str = ""
    cursor: str | None = None
    restarts: bool = False
    tries: int = 0
    failing_since: float | None = None
    delivered_at: float | None = None

    def open(self, keyring: Keyring) -> WebhookTarget:
        """
        Raises:
            DoesNotOpen, KeyMissing: it was altered, or encrypted with another keyring.
        """
        plain = open_kept(keyring, self.id, self.sealed, self.schema + _PLACE)
        return msgspec.msgpack.decode(plain, type=WebhookTarget)


def _seal_target(
    keyring: Keyring, identifier: bytes, schema: bytes, target: WebhookTarget
) -> bytes:
    padded = pad(msgspec.msgpack.encode(target))
    return seal_kept(keyring, identifier, padded, schema + _PLACE)


class WebhookStore:
    """Safe to use from several threads; every change is on disk when its call returns.

    Every method raises OutOfSpace where the disk is full, and Unavailable (``proxy_store_failed``)
    where the file fails otherwise.
    """

    def __init__(self, path: Path) -> None:
        """
        Raises:
            Startup: the file is damaged, or cannot be opened.
        """
        self._database = Database(
            path,
            _TABLE,
            code="proxy_store_failed",
            message="webhooks cannot be read or written",
            loss="webhooks are then gone; create them again",
        )

    def add(self, webhook: StoredWebhook) -> None:
        """
        Raises:
            BadInput: the user has too many already.
        """
        with self._database.writing() as database:
            query = "SELECT count(*) FROM webhook WHERE user = ?"
            (count,) = database.execute(query, (webhook.user,)).fetchone()
            if count >= _MOST_WEBHOOKS:
                raise errors.BadInput(
                    f"you have {_MOST_WEBHOOKS} webhooks, which is the limit",
                    hint="delete one first",
                )
            _put(database, webhook)

    def get(self, identifier: bytes) -> StoredWebhook | None:
        row = self._database.row(f"SELECT {_COLUMNS} FROM webhook WHERE id = ?", identifier)  # noqa: S608
        return None if row is None else _read(row)

    def list(self, user: bytes | None = None) -> list[StoredWebhook]:
        """The webhooks of a user, or of all users, the oldest first."""
        query = f"SELECT {_COLUMNS} FROM webhook WHERE ? IS NULL OR user = ? ORDER BY id"  # noqa: S608
        return [_read(row) for row in self._database.rows(query, user, user)]

    def update(self, webhook: StoredWebhook) -> bool:
        """Store the webhook's new state; False if it was deleted meanwhile."""
        with self._database.writing() as database:
            query = "SELECT 1 FROM webhook WHERE id = ?"
            if database.execute(query, (webhook.id,)).fetchone() is None:
                return False
            _put(database, webhook)
            return True

    def delete(self, identifier: bytes) -> None:
        self._database.run("DELETE FROM webhook WHERE id = ?", identifier)

    def close(self) -> None:
        self._database.close()


def _put(database: sqlite3.Connection, webhook: StoredWebhook) -> None:
    database.execute(
        f"INSERT OR REPLACE INTO webhook ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
        (
            *(webhook.id, webhook.user, webhook.schema, webhook.sealed),
            *(webhook.status, webhook.reason, webhook.cursor, webhook.restarts, webhook.tries),
            *(webhook.failing_since, webhook.delivered_at),
        ),
    )


def _read(row: Sequence[Any]) -> StoredWebhook:
    identifier, user, schema, sealed, status, reason, cursor, restarts, *times = row
    return StoredWebhook(
        *(bytes(identifier), bytes(user), bytes(schema), bytes(sealed)),
        *(Status(status), reason, cursor, bool(restarts), *times),
    )


# Deliveries.

_SECRET_BYTES = 32
#: Prefix of a secret, as receivers know it.
_SECRET_PREFIX = "whsec_"  # noqa: S105 # what begins each
#: Changes in one delivery.
_MOST_CHANGES = 500
#: Deliveries at a time, and those of one user: a receiver may take long to answer, and then the
#: webhooks of other users must not wait.
_AT_ONCE, _AT_ONCE_PER_USER = 16, 4
#: Pauses between tries grow from the first value to the second, in seconds; a webhook is stopped
#: after the third value of continuous failures, and this many tries.
FIRST_PAUSE, LONGEST_PAUSE, MOST_FAILING, FEWEST_TRIES = 1.0, 1800.0, 86_400.0, 48
#: Seconds between two checks whether a keyring was unlocked, and seconds of one wait for changes.
LOCKED_SECONDS, WAIT_SECONDS = 5.0, 60.0
#: Status by which the receiver unsubscribes.
_NO_MORE = 410


class Readmit(Protocol):
    async def __call__(
        self, user: bytes, token: credentials.BearerToken, device: str | None
    ) -> Holder:
        """The same as :meth:`Admission.readmit`."""


class _NotTaken(errors.Unavailable):
    """A delivery was not answered with 2xx, or not answered."""

    code = "webhook_failed"


@dataclass(frozen=True, slots=True)
class ShownWebhook:
    """A webhook as its user sees it."""

    webhook: StoredWebhook
    url: str


class Webhooks:
    def __init__(
        self,
        store: WebhookStore,
        keyrings: Keyrings,
        feed: Feed,
        sender: WebhookSender,
        readmit: Readmit,
        background: Background,
    ) -> None:
        self._store = store
        self._keyrings = keyrings
        self._feed = feed
        self._sender = sender
        self._readmit = readmit
        self._background = background
        self._tasks: dict[bytes, Task] = {}
        self._places = FairQueue(_AT_ONCE, most_per_user=_AT_ONCE_PER_USER)
        #: by ``delivered`` and ``failed``, since the start
        self.deliveries: Counter[str] = Counter()
        #: by status
        self.counts: Counter[str] = Counter()

    async def start(self) -> None:
        """Continue the active webhooks."""
        for webhook in await runtime.in_thread(self._store.list):
            self.counts[webhook.status] += 1
            if webhook.status is Status.ACTIVE:
                self._begin(webhook.id)

    async def close(self) -> None:
        await self._sender.close()

    # --- requests of users -------------------------------------------------------------------

    async def create(
        self, holder: Holder, schema: bytes, url: str, token: str, begin: str | None
    ) -> tuple[ShownWebhook, str]:
        """Make a webhook; returns it with its secret, which is shown only now.

        Args:
            token: a read-only API token of the user.
            begin: the first cursor, or ``now``; None begins with every record.

        Raises:
            BadInput: the address, the token or the cursor is not valid for a webhook.
            NotFound: the token does not reach the schema.
            ErsError: as :meth:`Feed.read`.
        """
        self._sender.check_url(url)
        reader = await self._reader(holder, token)
        if begin == "now":
            begin = str((await self._feed.begin_now(reader, schema)).cursor)
        else:
            cursor = None if begin is None else parse_cursor(begin)
            await self._feed.read(reader, schema, cursor, 1)
        identifier, secret = new_id(), runtime.random_bytes(_SECRET_BYTES)
        target = WebhookTarget(url, token, secret, holder.device)
        keyring = await runtime.in_thread(self._keyrings.of, holder)
        sealed = _seal_target(keyring, identifier, schema, target)
        webhook = StoredWebhook(identifier, holder.user, schema, sealed, cursor=begin)
        await runtime.in_thread(self._store.add, webhook)
        self.counts[webhook.status] += 1
        self._begin(identifier)
        return ShownWebhook(webhook, url), _SECRET_PREFIX + base64.b64encode(secret).decode()

    async def list(self, holder: Holder) -> list[ShownWebhook]:
        """The user's webhooks, the oldest first. A webhook under another keyring has no address.

        Raises:
            Closed: the keyring is locked.
        """
        keyring = await runtime.in_thread(self._keyrings.of, holder)
        shown: list[ShownWebhook] = []
        for webhook in await runtime.in_thread(self._store.list, holder.user):
            try:
                shown.append(ShownWebhook(webhook, webhook.open(keyring).url))
            except errors.Closed:
                shown.append(ShownWebhook(webhook, ""))
        return shown

    async def find(self, holder: Holder, identifier: bytes) -> ShownWebhook:
        """
        Raises:
            NotFound: the user has no such webhook.
            Closed: as :meth:`list`.
        """
        for shown in await self.list(holder):
            if shown.webhook.id == identifier:
                return shown
        raise errors.NotFound("there is no such webhook")

    async def resume(self, holder: Holder, identifier: bytes, token: str | None) -> ShownWebhook:
        """Resume a webhook now, at the position where it stopped.

        Args:
            token: replaces the webhook's API token.

        Raises:
            BadInput: the token is not valid for a webhook.
            NotFound, Closed: as :meth:`find`.
        """
        shown = await self.find(holder, identifier)
        webhook = shown.webhook
        keyring = await runtime.in_thread(self._keyrings.of, holder)
        sealed = webhook.sealed
        if token is not None:
            await self._reader(holder, token)
            before = webhook.open(keyring)
            target = WebhookTarget(before.url, token, before.secret, holder.device)
            sealed = _seal_target(keyring, identifier, webhook.schema, target)
        await self._end(identifier)
        present = await runtime.in_thread(self._store.get, identifier)
        if present is None:
            raise errors.NotFound("there is no such webhook")
        resumed = replace(
            present, sealed=sealed, status=Status.ACTIVE, reason="", tries=0, failing_since=None
        )
        await self._keep(present, resumed)
        self._begin(identifier)
        return replace(shown, webhook=resumed)

    async def delete(self, holder: Holder, identifier: bytes) -> None:
        """
        Raises:
            NotFound: the user has no such webhook.
        """
        webhook = await runtime.in_thread(self._store.get, identifier)
        if webhook is None or webhook.user != holder.user:
            raise errors.NotFound("there is no such webhook")
        await self._end(identifier)
        await runtime.in_thread(self._store.delete, identifier)
        self.counts[webhook.status] -= 1

    async def _reader(self, holder: Holder, text: str) -> Holder:
        """The holder for reading with an API token of the user.

        Raises:
            BadInput: it is not an API token, is not read-only, or is another user's.
        """
        token = credentials.parse_api_token(text)
        if token is None or token.writes:
            raise _wrong_token("expected a read-only API token")
        return await self._readmit(holder.user, token, holder.device)

    # --- deliveries of a webhook -------------------------------------------------------------

    def _begin(self, identifier: bytes) -> None:
        self._tasks[identifier] = self._background.start(WEBHOOKS, partial(self._run, identifier))

    async def _end(self, identifier: bytes) -> None:
        task = self._tasks.pop(identifier, None)
        if task is not None:
            task.cancel()
            await self._background.wait([task])

    async def _run(self, identifier: bytes) -> None:
        """Deliver until the webhook is stopped or deleted."""
        watch: WatchedSchema | None = None
        while True:
            try:
                webhook = await runtime.in_thread(self._store.get, identifier)
                if webhook is None or webhook.status is not Status.ACTIVE:
                    return
                watch = watch or self._feed.watch(webhook.schema)
                await self._step(webhook, watch)
            except errors.Unavailable as error:  # of this disk
                log.info("a webhook is waiting: %s", error.message)
                await runtime.sleep(LOCKED_SECONDS)

    async def _step(self, webhook: StoredWebhook, watch: WatchedSchema) -> None:
        """
        Raises:
            OutOfSpace, Unavailable: the store of webhooks cannot be used.
        """
        try:
            await self._advance(webhook, watch)
        except _NotTaken as error:
            await self._note_failure(webhook, error)
        except errors.ErsError as error:
            if isinstance(error, errors.Unavailable) or error.reason == "keyring_locked":
                if webhook.reason != error.reason:
                    log.info("a webhook is waiting: %s", error.message)
                    await self._keep(webhook, replace(webhook, reason=error.reason))
                await runtime.sleep(LOCKED_SECONDS)
            elif error.reason == "start_again":
                await self._keep(webhook, replace(webhook, cursor=None, restarts=True))
            else:
                await self._stop(webhook, error)

    async def _advance(self, webhook: StoredWebhook, watch: WatchedSchema) -> None:
        """Deliver the next changes, or wait for them."""
        locked = Holder.of_accepted_work(webhook.user)
        keyring = await runtime.in_thread(self._keyrings.of, locked)
        target = webhook.open(keyring)
        token = credentials.parse_api_token(target.token)
        assert token is not None, "it was one when it was sealed"
        reader = await self._readmit(webhook.user, token, target.device)
        newest = watch.newest
        cursor = None if webhook.cursor is None else parse_cursor(webhook.cursor)
        page = await self._feed.read(reader, webhook.schema, cursor, _MOST_CHANGES)
        if page.changes or webhook.restarts:
            await self._deliver(webhook, target, page)
            return
        if str(page.cursor) != webhook.cursor or webhook.reason:
            await self._keep(webhook, replace(webhook, cursor=str(page.cursor), reason=""))
        if page.current:
            until = runtime.monotonic() + WAIT_SECONDS
            since = max(newest, page.version)
            await self._feed.wait(reader, webhook.schema, watch, since, until)

    async def _deliver(self, webhook: StoredWebhook, target: WebhookTarget, page: FeedPage) -> None:
        """
        Raises:
            _NotTaken: the delivery was not accepted.
            Gone: ``webhook_gone``; the receiver unsubscribed.
        """
        head = {
            "webhook": reference("webhooks", webhook.id),
            "restart": webhook.restarts,
            "cursor": str(page.cursor),
            "version": page.version,
            "current": page.current,
        }
        changes = await write_changes(page, webhook.schema)
        body = to_json(head)[:-1] + b',"results":[' + b",".join(changes) + b"]}"
        name = _name_of(webhook, page)
        try:
            async with self._places.take(webhook.user):
                moment = int(runtime.wall())
                headers = {
                    "Content-Type": "application/json",
                    "webhook-id": name,
                    "webhook-timestamp": str(moment),
                    "webhook-signature": _sign(target.secret, name, moment, body),
                }
                status = await self._sender.send(target.url, body, headers)
        except errors.Unavailable as error:
            self.deliveries["failed"] += 1
            raise _NotTaken(error.message) from None
        if status == _NO_MORE:
            raise errors.Gone(
                "the receiver of a webhook declined further deliveries",
                code="webhook_gone",
                hint="",
            )
        if not 200 <= status < 300:
            self.deliveries["failed"] += 1
            raise _NotTaken(f"the receiver answered {status}")
        self.deliveries["delivered"] += 1
        taken = replace(
            webhook,
            cursor=str(page.cursor),
            restarts=False,
            reason="",
            tries=0,
            failing_since=None,
            delivered_at=runtime.wall(),
        )
        await self._keep(webhook, taken)

    async def _note_failure(self, webhook: StoredWebhook, error: _NotTaken) -> None:
        now = runtime.wall()
        since = now if webhook.failing_since is None else min(now, webhook.failing_since)
        failing = replace(
            webhook, reason=error.reason, tries=webhook.tries + 1, failing_since=since
        )
        # The clock alone is no evidence: it may have been set, or the machine was asleep.
        if now - since >= MOST_FAILING and failing.tries >= FEWEST_TRIES:
            await self._stop(failing, error)
            return
        await self._keep(webhook, failing)
        await runtime.sleep(min(LONGEST_PAUSE, FIRST_PAUSE * 2**webhook.tries))

    async def _stop(self, webhook: StoredWebhook, error: errors.ErsError) -> None:
        log.warning("webhook %s is stopped: %s", to_text(webhook.id), error.message)
        await self._keep(webhook, replace(webhook, status=Status.STOPPED, reason=error.reason))

    async def _keep(self, before: StoredWebhook, now: StoredWebhook) -> None:
        if await runtime.in_thread(self._store.update, now):
            self.counts[before.status] -= 1
            self.counts[now.status] += 1


def _sign(secret: bytes, name: str, moment: int, body: bytes) -> str:
    """The signature of a delivery (Standard Webhooks, version 1)."""
    signed = f"{name}.{moment}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(secret, signed, hashlib.sha256)).decode()


def _name_of(webhook: StoredWebhook, page: FeedPage) -> str:
    """The name of a delivery, which is the same for each try."""
    parts = (to_text(webhook.id), webhook.cursor or "", str(page.cursor))
    return "msg_" + hashlib.sha256("/".join(parts).encode()).hexdigest()[:32]


def _wrong_token(detail: str) -> errors.BadInput:
    return errors.BadInput(
        detail,
        hint="create one: ers token create NAME --dataset DATASET",
        flaws=(errors.Flaw("invalid", detail, "/token"),),
    )
