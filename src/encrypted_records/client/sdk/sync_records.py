"""A decrypted record: :class:`Record`.

Made of ``async_records.py`` by ``python -m scripts.synchronous_client``; change it there.
"""

# ruff: noqa: A002

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from encrypted_records.client.sdk.event_loop import Link
from encrypted_records.client.sdk.rows import warn_of_rounding
from encrypted_records.model.ids import reference


class Record(Mapping[str, Any]):
    """A record, opened: field names and values. ``data`` is the same, ``schema`` is a path."""

    def __init__(self, link: Link, id: str, schema: str, data: Mapping[str, Any]) -> None:
        self._link = link
        self.id = id
        self.schema = schema
        self.data = data

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}: {', '.join(self.data)}>"

    def __getitem__(self, field: str) -> Any:
        return self.data[field]

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)

    @property
    def url(self) -> str:
        """The path of the record."""
        return reference("records", self.id)

    def update(self, data: Mapping[str, Any], *, replace: bool = False) -> None:
        """Change the fields in ``data``, where None removes one; or with ``replace`` all."""
        record = self._link.run(self._link.proxy.change_record(self.id, data, replace=replace))
        self.data = record["data"]
        warn_of_rounding(record.get("rounded", ()))

    def delete(self, *, erase: bool = False) -> dict[str, Any] | None:
        """Delete it.

        Args:
            erase: have the bytes go now, and wait; then the receipt is returned, whose ``gone``
                says whether all of them have, and else what is left and who needs it.
        """
        if erase:
            return self._link.run(self._link.proxy.erase_record(self.id))
        self._link.run(self._link.proxy.delete_record(self.id))
        return None
