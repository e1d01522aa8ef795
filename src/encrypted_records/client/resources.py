"""Organizations, datasets, schemas and whatever else the API keeps in collections.

Resources come as the JSON objects that docs/http-api.md describes. Each has a ``url``, a path,
by which it is read, changed and deleted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from encrypted_records.client.connection import Connection

Resource = Mapping[str, Any]


class Resources(Connection):
    async def listing(self, collection: str, **filters: str) -> AsyncIterator[Resource]:
        """All resources of a collection, page after page.

        Args:
            collection: such as ``datasets``.
            filters: those that docs/http-api.md names for it, such as ``slug="people"``.
        """
        async for one in self._listed(f"/api/{collection}/", **filters):
            yield one

    async def resource(self, url: str) -> Resource:
        """The resource at a path."""
        found: Resource = await self._ask("GET", url)
        return found

    async def create(self, collection: str, **members: Any) -> Resource:
        """A new resource; members that are None are left out."""
        body = {name: value for name, value in members.items() if value is not None}
        found: Resource = await self._ask("POST", f"/api/{collection}/", body)
        return found

    async def change(self, url: str, **members: Any) -> Resource:
        """Change members of a resource; those that are None stay as they are."""
        body = {name: value for name, value in members.items() if value is not None}
        found: Resource = await self._ask("PATCH", url, body)
        return found

    async def delete(self, url: str, *, cascade: bool = False) -> None:
        """Delete a resource.

        Args:
            cascade: delete what is in it, too: a dataset's schemas, a schema's records.
        """
        await self._ask("DELETE", url, params={"cascade": "true"} if cascade else None)
