"""Erasures that take longer than the request that asks for them."""

from __future__ import annotations

from functools import partial
from typing import Any

from encrypted_records.client.proxy.erasure import SchemaErasure
from encrypted_records.model.resources import ErasureState
from tests.support.eventually import eventually
from tests.support.service import Answer
from tests.support.store import Store

#: A machine may be busy with other tests; nothing is measured by this.
MOST_SECONDS = 180.0
#: An erasure up to version 7 that the API has not done.
UNDONE = SchemaErasure(
    schema="/api/schemas/2JZvcvw3K6xCtJLowDmfyB/",
    version=7,
    log_digest="",
    merged_rows=0,
    gone=False,
    left=ErasureState(
        version=7,
        asked=7,
        done=3,
        due=None,
        database="sqlite",
        holds=[],
        rows=0,
        segments=0,
        groups=0,
        since=None,
    ),
)


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
