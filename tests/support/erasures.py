"""Erasures that take longer than the request that asks for them."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.support.eventually import eventually
from tests.support.service import Answer
from tests.support.store import Store

#: A machine may be busy with other tests; nothing is measured by this.
MOST_SECONDS = 180.0


def seen_through(store: Store, answer: Answer) -> dict[str, Any]:
    """The receipt of an erasure, once the API says that all of it is gone."""
    assert answer.status in (200, 202), answer.body
    receipt: dict[str, Any] = answer.json()
    assert receipt["gone"] is (answer.status == 200)
    for schema in receipt["schemas"]:
        if not schema["gone"]:
            eventually(partial(_is_gone, store, schema), "its bytes are gone", MOST_SECONDS)
            schema["gone"] = True
    return receipt | {"gone": True}


def _is_gone(store: Store, one: dict[str, Any]) -> bool:
    one["left"] = store.proxy("GET", f"{one['schema']}erasure/").json()["api"]
    return bool(one["left"]["done"] >= one["version"])
