"""The common base of datasets and schemas: :class:`Named`.

Made of ``async_named.py`` by ``python -m scripts.synchronous_client``; change it there.
"""

from __future__ import annotations

from encrypted_records.client.proxy.resources import Resource
from encrypted_records.client.sdk.event_loop import Link


class Named:
    """The common base of datasets and schemas. ``members`` is the service's whole answer."""

    def __init__(self, link: Link, members: Resource) -> None:
        self._link = link
        self.members = members

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.slug}>"

    @property
    def id(self) -> str:
        return str(self.members["id"])

    @property
    def url(self) -> str:
        """The path of the object."""
        return str(self.members["url"])

    @property
    def name(self) -> str:
        return str(self.members["name"])

    @property
    def slug(self) -> str:
        return str(self.members["slug"])

    @property
    def description(self) -> str:
        return str(self.members["description"])

    def update(
        self, *, name: str | None = None, slug: str | None = None, description: str | None = None
    ) -> None:
        """Change what is named here; the rest stays."""
        self.members = self._link.run(
            self._link.proxy.change(self.url, name=name, slug=slug, description=description)
        )

    def delete(self, *, cascade: bool = False) -> None:
        """Delete it.

        Args:
            cascade: with all that is in it, which is refused otherwise.
        """
        self._link.run(self._link.proxy.delete(self.url, cascade=cascade))
