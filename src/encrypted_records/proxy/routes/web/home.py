"""The start: an empty account is led through its first steps, others find their datasets."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from encrypted_records.errors import Closed, NotFound
from encrypted_records.proxy.routes.web.visit import Visit, page


async def start(visit: Visit) -> Response:
    datasets = await visit.every("/api/datasets/")
    schemas = await visit.every("/api/schemas/")
    filled = [one for one in schemas if one["key_id"] is not None]
    done = {
        "backup": await _is_backed_up(visit),
        "dataset": bool(datasets),
        "schema": bool(schemas),
        "upload": bool(filled),
        "search": bool(filled) and "search" in visit.desk,
    }
    missing = [name for name, is_done in done.items() if not is_done]
    return visit.render(
        "home.html",
        done=done,
        next=missing[0] if missing else "",
        # Whoever has records has found the way; the steps would only be in it.
        leading=not filled or not done["search"],
        dataset=_newest(datasets),
        schema=_newest(filled or schemas),
        datasets=datasets,
        by_dataset={
            one["url"]: [s for s in schemas if s["dataset"] == one["url"]] for one in datasets
        },
    )


async def _is_backed_up(visit: Visit) -> bool:
    try:
        keyring = await visit.ask("GET", "/api/keyring/")
    except NotFound:
        return False
    except Closed:
        # The page of the keyring says what to do; here it would only say it twice.
        return True
    return bool(keyring["backup_confirmed"])


def _newest(found: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Identifiers sort by creation."""
    return max(found, key=lambda one: str(one["id"]), default=None)


async def nothing(_visit: Visit) -> Response:
    raise NotFound("there is no such page")


routes = [page("/", start)]
#: After all others.
last = page("/{path:path}", nothing, public=True)
