"""The API's lists, page after page."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from encrypted_records.client.transport import Transport
from encrypted_records.errors import ApiFailed

T = TypeVar("T")

#: Pages of one list. An API that is to be trusted in nothing may have one without an end.
MOST_PAGES = 200


class _Page(msgspec.Struct, Generic[T]):
    next: str | None
    results: list[T]


async def read_list(transport: Transport, path: str, kind: type[T], auth: str) -> list[T]:
    """All of a list.

    Args:
        path: of its first page, with its parameters.

    Raises:
        ApiFailed: the list has no end, or goes on elsewhere; or a page is not of the form.
    """
    found: list[T] = []
    here, _, _ = path.partition("?")
    for _ in range(MOST_PAGES):
        answer = await transport.request("GET", path, auth=auth)
        page: Any = answer.convert(_Page[kind])  # type: ignore[valid-type]
        found += page.results
        if page.next is None:
            return found
        # It is put behind the API's address, and must not turn that into another one.
        if not page.next.startswith(f"{here}?"):
            raise ApiFailed("a list of the API continues at another path")
        path = page.next
    raise ApiFailed("a list of the API has no end")
