"""Erasures that take longer than the request that asks for them."""

from __future__ import annotations

import time
from typing import Any

from tests.support.service import Answer
from tests.support.store import Store

#: A machine may be busy with other tests; nothing is measured by this.
MOST_SECONDS = 180.0


def seen_through(store: Store, answer: Answer) -> dict[str, Any]:
    """The receipt of an erasure, once the API says that all of it is gone."""
    assert answer.status in (200, 202), answer.body
    receipt: dict[str, Any] = answer.json()
    assert receipt["gone"] is (answer.status == 200)
    deadline = time.monotonic() + MOST_SECONDS
    for one in receipt["schemas"]:
        while not one["gone"]:
            assert time.monotonic() < deadline, one
            time.sleep(0.2)
            looked = store.proxy("GET", f"{one['schema']}erasure/").json()["api"]
            one |= {"gone": looked["done"] >= one["version"], "left": looked}
    return receipt | {"gone": True}
