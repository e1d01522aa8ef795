"""Organizations, datasets, schemas and whatever else the API keeps in collections.

Resources come as the JSON objects that docs/http-api.md describes. Each has a ``url``, a path,
by which it is read, changed and deleted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from encrypted_records.client.proxy.connection import Connection
from encrypted_records.errors import Conflict

Resource = Mapping[str, Any]


class Resources(Connection):
    async def listing(self, /, collection: str, **filters: str) -> AsyncIterator[Resource]:
        """All resources of a collection, page after page.

        Args:
            collection: such as ``datasets``.
            filters: those that docs/http-api.md names for it, such as ``slug="people"``.
        """
        async for resource in self._list(f"/api/{collection}/", **filters):
            yield resource

    async def resource(self, url: str) -> Resource:
        """The resource at a path."""
        resource: Resource = await self._ask("GET", url)
        return resource

    async def create(self, /, collection: str, **members: Any) -> Resource:
        """A new resource; members that are None are left out."""
        body = {name: value for name, value in members.items() if value is not None}
        resource: Resource = await self._ask("POST", f"/api/{collection}/", body)
        return resource

    async def change(self, /, url: str, **members: Any) -> Resource:
        """Change members of a resource; those that are None stay as they are."""
        body = {name: value for name, value in members.items() if value is not None}
        resource: Resource = await self._ask("PATCH", url, body)
        return resource

    async def delete(self, url: str, *, cascade: bool = False) -> None:
        """Delete a resource.

        Args:
            cascade: delete what is in it, too: a dataset's schemas, a schema's records.
        """
        try:
            await self._ask("DELETE", url, params={"cascade": "true"} if cascade else None)
        except Conflict as error:
            if error.reason not in ("dataset_not_empty", "schema_not_empty"):
                raise
            hint = "delete them first, or repeat with cascade=True (ers: --cascade)"
            raise Conflict(error.message, code=error.reason, hint=hint) from None
