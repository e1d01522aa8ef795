"""The width of a schema's rows, estimated from the last fetched rows."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection

#: Rows that count, and schemas.
_ROWS = 4096
_SCHEMAS = 1000


class RowWidths:
    def __init__(self) -> None:
        #: rows and bytes
        self._seen: OrderedDict[bytes, tuple[float, float]] = OrderedDict()

    def __contains__(self, schema: bytes) -> bool:
        return schema in self._seen

    def add(self, schema: bytes, rows: Collection[bytes]) -> None:
        if not rows:
            return
        count, size = self._seen.pop(schema, (0.0, 0.0))
        fade = min(1.0, max(0.0, 1 - len(rows) / _ROWS))
        self._seen[schema] = (count * fade + len(rows), size * fade + sum(map(len, rows)))
        if len(self._seen) > _SCHEMAS:
            self._seen.popitem(last=False)

    def rows_in(self, schema: bytes, size: int) -> int:
        """The number of rows of a schema that take ``size`` bytes; very large if nothing is
        known.
        """
        if schema not in self._seen:
            return 1 << 30
        count, seen = self._seen[schema]
        return int(size * count / max(1.0, seen))
