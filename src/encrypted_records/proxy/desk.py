"""What a visitor of the pages is busy with: filters, order, page. In memory, and nowhere else.

Filters quote what people search for. In an address they would end in the browser's history, in
bookmarks and in what is shared; so a page's address names the schema at most, and the rest waits
here until the session ends or nobody has come for a while.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from cryptography.hazmat.primitives import hashes, hmac

T = TypeVar("T")

#: A desk is cleared when nobody has used it for this long.
IDLE_SECONDS = 8 * 3600.0
MAX_DESKS = 1000
#: Schemas whose search one session keeps.
MAX_ITEMS = 100


@dataclass(slots=True)
class Desk:
    """One session's. Kept under names such as ``("search", schema)``."""

    used: float = 0.0
    _items: OrderedDict[tuple[str, ...], Any] = field(default_factory=OrderedDict, repr=False)

    def item(self, name: tuple[str, ...], make: Callable[[], T]) -> T:
        """What lies there under ``name``; made when there is nothing."""
        found: T = self._items[name] if name in self._items else make()
        self.put(name, found)
        return found

    def put(self, name: tuple[str, ...], item: object) -> None:
        self._items[name] = item
        self._items.move_to_end(name)
        while len(self._items) > MAX_ITEMS:
            self._items.popitem(last=False)

    def __contains__(self, kind: str) -> bool:
        return any(name[0] == kind for name in self._items)


class Desks:
    """Desks by session; a session is known by an HMAC of its cookie only."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._secret = os.urandom(32)
        self._clock = clock
        self._desks: OrderedDict[bytes, Desk] = OrderedDict()

    def of(self, session: str) -> Desk:
        now = self._clock()
        name = self._name(session)
        desk = self._desks.pop(name, Desk())
        if desk.used < now - IDLE_SECONDS:
            desk = Desk()
        while self._desks:
            oldest = next(iter(self._desks))
            if self._desks[oldest].used > now - IDLE_SECONDS and len(self._desks) < MAX_DESKS:
                break
            del self._desks[oldest]
        desk.used = now
        self._desks[name] = desk
        return desk

    def clear(self, session: str) -> None:
        self._desks.pop(self._name(session), None)

    def _name(self, session: str) -> bytes:
        state = hmac.HMAC(self._secret, hashes.SHA256())
        state.update(session.encode())
        return state.finalize()
