"""The changes of a schema's records: read by a client, or sent by the proxy to a webhook."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from encrypted_records.client.proxy.connection import Connection
from encrypted_records.model.ids import reference
from encrypted_records.model.queries import MAX_LIMIT
from encrypted_records.model.resources import Count, Id, RecordPath, SchemaPath

#: Seconds for which a request waits for changes.
WAIT_SECONDS = 30


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """A record that was stored or replaced, or deleted.

    Attributes:
        version: version of the log.
        etag: ETag of the record.
        data: the values by field; absent if the record was deleted.
    """

    op: Literal["upsert", "delete"]
    version: Count
    id: Id
    url: RecordPath
    schema: SchemaPath
    etag: str
    data: Mapping[str, Any] | None = None

    def __repr__(self) -> str:
        # Without values, because a repr may end up in a log.
        return f"<{type(self).__name__} {self.version}: {self.op} {self.id}>"


class Changes(msgspec.Struct, frozen=True):
    """Changes in their order.

    Attributes:
        cursor: leads to the changes after these.
        version: version of the log.
        current: whether a program that has applied all changes since the first has the same records
            as a search at ``version``.
    """

    cursor: str
    version: Count
    current: bool
    changes: Sequence[Change] = msgspec.field(name="results")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.version}: {len(self.changes)}>"


class ChangeCalls(Connection):
    async def read_changes(
        self, schema: str, cursor: str | None = None, *, limit: int = MAX_LIMIT, wait: int = 0
    ) -> Changes:
        """Read changes after a cursor.

        Args:
            schema: its path.
            cursor: from earlier changes, or ``now``; None begins with every live record.
            limit: maximum number of changes, up to 1,000.
            wait: seconds to wait if there are none yet, up to 60.

        Raises:
            Gone: ``start_again``; the feed cannot continue from this cursor.
        """
        params = {"schema": schema, "limit": str(limit), "wait": str(wait)}
        if cursor is not None:
            params["cursor"] = cursor
        return (await self._ask("GET", "/api/records/changes/", params=params)).convert(Changes)

    async def changes(
        self, schema: str, cursor: str | None = None, *, follow: bool = True
    ) -> AsyncIterator[Changes]:
        """Changes after a cursor, as they happen.

        Args:
            schema, cursor: as for :meth:`read_changes`.
            follow: wait for further changes after the current ones, and never end.

        Raises:
            Gone: as :meth:`read_changes`.
        """
        is_current = False
        while True:
            page = await self.read_changes(schema, cursor, wait=WAIT_SECONDS if is_current else 0)
            cursor = page.cursor
            if page.changes or (page.current and not is_current):
                yield page
            if page.current and not follow:
                return
            is_current = page.current


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook, and how its deliveries go.

    Attributes:
        target: address to which changes are sent.
        reason: code of the last error; empty if the last delivery succeeded.
        tries: number of failed attempts at the present delivery.
        failing_since: time of the first failed attempt; None if there was none.
        delivered: time of the last successful delivery; None before the first.
        restarting: whether it begins again with all records.
        cursor: position behind the delivered changes; None if it begins with all records.
    """

    id: Id
    url: str
    schema: SchemaPath
    target: str
    status: Literal["active", "stopped"]
    reason: str
    tries: Count
    failing_since: datetime | None
    delivered: datetime | None
    restarting: bool
    cursor: str | None

    def __repr__(self) -> str:
        # Without its URL, which may contain a secret.
        return f"<{type(self).__name__} {self.id}: {self.status}>"


class NewWebhook(Webhook, frozen=True, kw_only=True):
    """A new webhook.

    Attributes:
        secret: key that signs the deliveries; it is shown only once.
    """

    secret: str

    def __repr__(self) -> str:
        return Webhook.__repr__(self)


class WebhookList(msgspec.Struct, frozen=True):
    """A user's webhooks at a proxy, the oldest first."""

    results: list[Webhook]


class WebhookCalls(Connection):
    async def create_webhook(
        self, schema: str, url: str, *, token: str, cursor: str | None = "now"
    ) -> NewWebhook:
        """Create a webhook that sends the changes of a schema.

        Args:
            schema: its path.
            url: the target of the deliveries.
            token: a read-only API token of yours, with whose rights the proxy reads.
            cursor: the position after which to begin, or ``now``; None begins with every record.
        """
        body = {"schema": schema, "url": url, "token": token, "cursor": cursor}
        return (await self._ask("POST", "/api/webhooks/", body)).convert(NewWebhook)

    async def webhooks(self) -> list[Webhook]:
        """Your webhooks at this proxy, the oldest first."""
        return (await self._ask("GET", "/api/webhooks/")).convert(WebhookList).results

    async def resume_webhook(self, webhook_id: str, *, token: str | None = None) -> Webhook:
        """Make a webhook retry now, from its last position.

        Args:
            token: replaces the token with which the proxy reads.
        """
        body = {} if token is None else {"token": token}
        path = f"{reference('webhooks', webhook_id)}resume/"
        return (await self._ask("POST", path, body)).convert(Webhook)

    async def delete_webhook(self, webhook_id: str) -> None:
        await self._ask("DELETE", reference("webhooks", webhook_id))
