"""Webhooks: have the proxy send the changes of a schema to an address."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from encrypted_records.client.proxy.connection import Connection, convert
from encrypted_records.model.ids import reference


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook, and how its deliveries go: ``reason`` is the code of the last error; ``tries`` of
    the present delivery have failed since ``failing_since``."""

    id: str
    url: str
    schema: str
    target: str
    status: Literal["active", "stopped"]
    reason: str
    tries: int
    failing_since: datetime | None
    delivered: datetime | None
    restarting: bool
    cursor: str | None

    def __repr__(self) -> str:
        # Without its target, whose address may hold a secret.
        return f"<{type(self).__name__} {self.id}: {self.status}>"


class NewWebhook(Webhook, frozen=True, kw_only=True):
    """``secret`` signs the deliveries; it is shown only once."""

    secret: str

    def __repr__(self) -> str:
        return Webhook.__repr__(self)


class WebhookCalls(Connection):
    async def create_webhook(
        self, schema: str, url: str, *, token: str, cursor: str | None = "now"
    ) -> NewWebhook:
        """Create a webhook that sends the changes of a schema.

        Args:
            schema: its path.
            url: where to.
            token: an API token of yours that only reads, by whose rights the proxy reads.
            cursor: behind which to begin, or ``now``; None begins with every record.
        """
        body = {"schema": schema, "url": url, "token": token, "cursor": cursor}
        return convert(await self._ask("POST", "/api/webhooks/", body), NewWebhook)

    async def webhooks(self) -> list[Webhook]:
        """Yours at this proxy, the oldest first."""
        answer = await self._ask("GET", "/api/webhooks/")
        return convert(answer["results"], list[Webhook])

    async def resume_webhook(self, webhook_id: str, *, token: str | None = None) -> Webhook:
        """Make a webhook try again now, from the position where it was.

        Args:
            token: to read with from now on, instead of the one before.
        """
        body = {} if token is None else {"token": token}
        path = f"{reference('webhooks', webhook_id)}resume/"
        return convert(await self._ask("POST", path, body), Webhook)

    async def delete_webhook(self, webhook_id: str) -> None:
        await self._ask("DELETE", reference("webhooks", webhook_id))
