"""The state of a visitor's pages: filters, order, page number. It is kept only in memory.

Filters contain search terms. In a URL they would end up in the browser's history, in bookmarks and
in shared links. So a page's URL names at most the schema; the rest is kept here until the user logs
out, or for a while after its last use. If a session ends in another way, its state passes to the
next session of the same user in the same browser.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from encrypted_records import runtime
from encrypted_records.proxy.process.secrecy import SecretNames

T = TypeVar("T")

#: A desk is cleared when nobody has used it for this long.
IDLE_SECONDS = 8 * 3600.0
MAX_DESKS = 1000
#: Questions, and schemas, that one session keeps.
MAX_ITEMS = 200


@dataclass(slots=True)
class Desk:
    """Items of one session, with names such as ``("search", schema)``."""

    used: float = 0.0
    #: whose session it is, once that is known
    user: bytes = b""
    #: when a form was sent last that may have changed what pages show, by the monotonic clock
    changed_at: float = float("-inf")
    _items: OrderedDict[tuple[str, ...], Any] = field(default_factory=OrderedDict, repr=False)

    def item(self, name: tuple[str, ...], make: Callable[[], T]) -> T:
        """The item under ``name``; made when there is none."""
        item: T = self._items[name] if name in self._items else make()
        self.put(name, item)
        return item

    def find(self, name: tuple[str, ...], kind: type[T]) -> T | None:
        """The item under ``name``, if there is one."""
        item = self._items.get(name)
        return item if isinstance(item, kind) else None

    def take(self, name: tuple[str, ...], kind: type[T]) -> T | None:
        """The item under ``name``, which is gone from the desk then."""
        item = self._items.pop(name, None)
        return item if isinstance(item, kind) else None

    def put(self, name: tuple[str, ...], item: object) -> None:
        self._items[name] = item
        self._items.move_to_end(name)
        while len(self._items) > MAX_ITEMS:
            self._items.popitem(last=False)

    def get(self, name: tuple[str, ...]) -> Any:
        """The item under ``name``; None when there is none."""
        return self._items.get(name)

    def __contains__(self, kind: str) -> bool:
        return any(name[0] == kind for name in self._items)


class Desks:
    """Desks by session; a session is known by an HMAC of its cookie only."""

    def __init__(self, clock: Callable[[], float] = runtime.monotonic) -> None:
        self._names = SecretNames()
        self._clock = clock
        self._desks: OrderedDict[bytes, Desk] = OrderedDict()

    def of(self, session: str) -> Desk:
        """The desk of a session; without one, a desk that nobody is given again."""
        now = self._clock()
        if not session:
            return Desk(now)
        name = self._names.of([session])
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

    def known(self, session: str) -> Desk | None:
        """The desk of a session that has one; none is made."""
        desk = self._desks.get(self._names.of([session]))
        return None if desk is None or desk.used < self._clock() - IDLE_SECONDS else desk

    def hand_over(self, ended: str, session: str, user: bytes) -> None:
        """The desk of a session that has ended becomes that of ``session``, if it was the same
        user's."""
        desk = self._desks.pop(self._names.of([ended]), None)
        if desk is not None and desk.user == user:
            self._desks[self._names.of([session])] = desk

    def clear(self, session: str) -> None:
        self._desks.pop(self._names.of([session]), None)
