"""Webhooks: the change feed of a schema, sent to an address as it happens.

- Each delivery is signed according to Standard Webhooks (https://www.standardwebhooks.com):
  HMAC-SHA256 under a secret that was shown once, over the id of the delivery, its time and its
  body.
- A delivery is repeated until an answer of 2xx, with longer and longer pauses, for a day; then the
  webhook is stopped, and continues from there when its owner resumes it. So each change is
  delivered at least once, across restarts.
- It reads with an API token that its user provided, with the rights of that token, and under the
  user's keyring: it waits while the keyring is locked, and ends with a named error when it has lost
  the right to read.
- No log and no error has its address, which may hold a secret of the receiver's.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from encrypted_records import runtime
from encrypted_records.client.webhook_sender import WebhookSender
from encrypted_records.errors import (
    BadInput,
    Closed,
    ErsError,
    Flaw,
    Gone,
    NotFound,
    Refused,
    Unavailable,
)
from encrypted_records.model import credentials
from encrypted_records.model.ids import new_id, reference, to_text
from encrypted_records.proxy.feed.cursor import parse_cursor
from encrypted_records.proxy.feed.feed import Feed
from encrypted_records.proxy.feed.pages import FeedPage, write_changes
from encrypted_records.proxy.feed.waiting import WatchedSchema
from encrypted_records.proxy.feed.webhook_store import (
    Status,
    StoredWebhook,
    WebhookStore,
    WebhookTarget,
    seal_target,
)
from encrypted_records.proxy.http.messages import to_json
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.keyrings.store import Keyrings
from encrypted_records.proxy.process.background import WEBHOOKS, Background, Task

log = logging.getLogger(__name__)

SECRET_BYTES = 32
#: Of a secret, as receivers know it.
SECRET_PREFIX = "whsec_"  # noqa: S105 # what begins each
#: Changes in one delivery.
MOST_CHANGES = 500
#: Pauses between tries grow from the first to the second, in seconds; after the third of failing
#: the webhook is stopped.
FIRST_PAUSE, LONGEST_PAUSE, MOST_FAILING = 1.0, 1800.0, 86_400.0
#: Between two looks whether a keyring was unlocked, and for how long one wait for changes lasts.
LOCKED_SECONDS, WAIT_SECONDS = 5.0, 60.0
#: An answer by which the receiver wants no more.
_NO_MORE = 410


class Readmit(Protocol):
    async def __call__(
        self, user: bytes, token: credentials.BearerToken, device: str | None
    ) -> Holder:
        """The same as :meth:`Admission.readmit`."""


class _NotTaken(Unavailable):
    """A delivery was answered otherwise than by 2xx, or not at all."""

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
        #: by ``delivered`` and ``failed``, since the start
        self.deliveries: Counter[str] = Counter()
        #: by status
        self.counts: Counter[str] = Counter()

    async def start(self) -> None:
        """Continue those that are active."""
        for webhook in await runtime.in_thread(self._store.list):
            self.counts[webhook.status] += 1
            if webhook.status is Status.ACTIVE:
                self._begin(webhook.id)

    async def close(self) -> None:
        await self._sender.close()

    # --- what users ask ----------------------------------------------------------------------

    async def create(
        self, holder: Holder, schema: bytes, url: str, token: str, begin: str | None
    ) -> tuple[ShownWebhook, str]:
        """A new webhook, and its secret, which is shown this once.

        Args:
            token: an API token of the user's that only reads.
            begin: the cursor to begin with, or ``now``; None begins with every record.

        Raises:
            BadInput: the address, the token or the cursor is not one for it.
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
        identifier, secret = new_id(), runtime.random_bytes(SECRET_BYTES)
        target = WebhookTarget(url, token, secret, holder.device)
        keyring = await runtime.in_thread(self._keyrings.of, holder)
        sealed = seal_target(keyring, identifier, schema, target)
        webhook = StoredWebhook(identifier, holder.user, schema, sealed, cursor=begin)
        await runtime.in_thread(self._store.add, webhook)
        self.counts[webhook.status] += 1
        self._begin(identifier)
        return ShownWebhook(webhook, url), SECRET_PREFIX + base64.b64encode(secret).decode()

    async def list(self, holder: Holder) -> list[ShownWebhook]:
        """The user's webhooks, the oldest first. One whose keyring is another has no address.

        Raises:
            Closed: the keyring is locked.
        """
        keyring = await runtime.in_thread(self._keyrings.of, holder)
        shown: list[ShownWebhook] = []
        for webhook in await runtime.in_thread(self._store.list, holder.user):
            try:
                shown.append(ShownWebhook(webhook, webhook.open(keyring).url))
            except Closed:
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
        raise NotFound("there is no such webhook")

    async def resume(self, holder: Holder, identifier: bytes, token: str | None) -> ShownWebhook:
        """Resume a webhook now, at the position where it stopped.

        Args:
            token: replaces the one that it reads with.

        Raises:
            BadInput: the token is not one for it.
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
            sealed = seal_target(keyring, identifier, webhook.schema, target)
        await self._end(identifier)
        present = await runtime.in_thread(self._store.get, identifier)
        if present is None:
            raise NotFound("there is no such webhook")
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
            raise NotFound("there is no such webhook")
        await self._end(identifier)
        await runtime.in_thread(self._store.delete, identifier)
        self.counts[webhook.status] -= 1

    async def _reader(self, holder: Holder, text: str) -> Holder:
        """The holder that reads with an API token of the user's.

        Raises:
            BadInput: it is not one, or writes, or is another's.
        """
        token = credentials.parse_api_token(text)
        if token is None or token.writes:
            raise _wrong_token("expected a read-only API token")
        return await self._readmit(holder.user, token, holder.device)

    # --- the work of each --------------------------------------------------------------------

    def _begin(self, identifier: bytes) -> None:
        self._tasks[identifier] = self._background.start(WEBHOOKS, partial(self._run, identifier))

    async def _end(self, identifier: bytes) -> None:
        task = self._tasks.pop(identifier, None)
        if task is not None:
            task.cancel()
            await self._background.wait([task])

    async def _run(self, identifier: bytes) -> None:
        """Deliver until it is stopped or deleted."""
        watch: WatchedSchema | None = None
        while True:
            webhook = await runtime.in_thread(self._store.get, identifier)
            if webhook is None or webhook.status is not Status.ACTIVE:
                return
            watch = watch or self._feed.watch(webhook.schema)
            try:
                await self._advance(webhook, watch)
            except _NotTaken as error:
                await self._note_failure(webhook, error)
            except Unavailable as error:  # the API, or the disk
                log.info("a webhook is waiting: %s", error.message)
                await runtime.sleep(LOCKED_SECONDS)
            except Gone as error:
                if error.reason == "start_again":
                    again = replace(webhook, cursor=None, restarts=True)
                    await self._keep(webhook, again)
                else:
                    await self._stop(webhook, error)
            except (Refused, BadInput) as error:
                if error.reason == "keyring_locked":
                    await runtime.sleep(LOCKED_SECONDS)
                else:
                    await self._stop(webhook, error)

    async def _advance(self, webhook: StoredWebhook, watch: WatchedSchema) -> None:
        """Deliver what is next, or wait for it."""
        locked = Holder.of_accepted_work(webhook.user)
        keyring = await runtime.in_thread(self._keyrings.of, locked)
        target = webhook.open(keyring)
        token = credentials.parse_api_token(target.token)
        assert token is not None, "it was one when it was sealed"
        reader = await self._readmit(webhook.user, token, target.device)
        newest = watch.newest
        cursor = None if webhook.cursor is None else parse_cursor(webhook.cursor)
        page = await self._feed.read(reader, webhook.schema, cursor, MOST_CHANGES)
        if page.changes or webhook.restarts:
            await self._deliver(webhook, target, page)
            return
        if str(page.cursor) != webhook.cursor:
            await self._keep(webhook, replace(webhook, cursor=str(page.cursor)))
        if page.current:
            until = runtime.monotonic() + WAIT_SECONDS
            since = max(newest, page.version)
            await self._feed.wait(reader, webhook.schema, watch, since, until)

    async def _deliver(self, webhook: StoredWebhook, target: WebhookTarget, page: FeedPage) -> None:
        """
        Raises:
            _NotTaken: it was not taken.
            Gone: ``webhook_gone``; the receiver wants no more.
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
        moment = int(runtime.wall())
        headers = {
            "Content-Type": "application/json",
            "webhook-id": name,
            "webhook-timestamp": str(moment),
            "webhook-signature": sign(target.secret, name, moment, body),
        }
        try:
            status = await self._sender.send(target.url, body, headers)
        except Unavailable as error:
            self.deliveries["failed"] += 1
            raise _NotTaken(error.message) from None
        if status == _NO_MORE:
            raise Gone(
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
        since = now if webhook.failing_since is None else webhook.failing_since
        failing = replace(
            webhook, reason=error.reason, tries=webhook.tries + 1, failing_since=since
        )
        if now - since >= MOST_FAILING:
            await self._stop(failing, error)
            return
        await self._keep(webhook, failing)
        await runtime.sleep(min(LONGEST_PAUSE, FIRST_PAUSE * 2**webhook.tries))

    async def _stop(self, webhook: StoredWebhook, error: ErsError) -> None:
        log.warning("webhook %s is stopped: %s", to_text(webhook.id), error.message)
        await self._keep(webhook, replace(webhook, status=Status.STOPPED, reason=error.reason))

    async def _keep(self, before: StoredWebhook, now: StoredWebhook) -> None:
        if await runtime.in_thread(self._store.update, now):
            self.counts[before.status] -= 1
            self.counts[now.status] += 1


def sign(secret: bytes, name: str, moment: int, body: bytes) -> str:
    """The signature of a delivery (Standard Webhooks, version 1)."""
    signed = f"{name}.{moment}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(secret, signed, hashlib.sha256)).decode()


def _name_of(webhook: StoredWebhook, page: FeedPage) -> str:
    """Names a delivery, alike each time that it is tried."""
    parts = (to_text(webhook.id), webhook.cursor or "", str(page.cursor))
    return "msg_" + hashlib.sha256("/".join(parts).encode()).hexdigest()[:32]


def _wrong_token(detail: str) -> BadInput:
    return BadInput(
        detail,
        hint="create one: ers token create NAME --dataset DATASET",
        flaws=(Flaw("invalid", detail, "/token"),),
    )
