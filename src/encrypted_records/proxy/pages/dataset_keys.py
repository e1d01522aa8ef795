"""The keys of a dataset: a new one is begun, everything is sealed under it, and those before it are
forgotten; each by a form of its own."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from encrypted_records.errors import Conflict
from encrypted_records.proxy.pages.page import Visit, page

_TEMPLATE = "dataset_keys.html"
#: Why a schema's records are not sealed again now: somebody does it, or there are none.
_LEFT_OUT = ("reseal_under_way", "nothing_to_reseal")


def _url(visit: Visit) -> str:
    return f"/api/datasets/{visit.id}/"


async def show(visit: Visit) -> Response:
    """Says what older keys still open, and takes the next step of letting them go."""
    if not visit.sends:
        return await _page(visit, await _look(visit))
    try:
        return await _STEPS.get(visit.text("do"), _stay)(visit)
    except Conflict as error:
        return visit.problem(error, _TEMPLATE, **await _shown(visit, await _look(visit)))


async def _look(visit: Visit) -> dict[str, Any]:
    """The uses of the older keys, which only owners can see."""
    keys: dict[str, Any] = await visit.ask("POST", f"{_url(visit)}forget/", {"dry_run": True})
    return keys


async def _page(visit: Visit, keys: dict[str, Any]) -> Response:
    return visit.render(_TEMPLATE, **await _shown(visit, keys))


async def _shown(visit: Visit, keys: dict[str, Any]) -> dict[str, Any]:
    """The template's values for an answer about the keys."""
    dataset = await visit.ask("GET", _url(visit))
    listed = await visit.every("/api/schemas/", dataset=dataset["id"])
    names = {entry["url"]: entry["name"] for entry in listed}
    schemas = [schema | {"name": names.get(schema["schema"], "")} for schema in keys["schemas"]]
    older = _older(keys)
    return {
        "dataset": dataset,
        "keys": keys,
        "schemas": schemas,
        "older": older,
        "records": sum(group["records"] for group in older),
        "waits_for": [key["left"] for key in keys.get("erasing", {}).get("schemas", ())],
        "troubles": keys.get("troubles", ()),
    }


def _older(keys: dict[str, Any]) -> list[dict[str, Any]]:
    """The schemas that have something under an older key."""
    return [schema for schema in keys["schemas"] if not schema["present"]]


async def _stay(visit: Visit) -> Response:
    return visit.go(f"/datasets/{visit.id}/keys/")


async def _rotate(visit: Visit) -> Response:
    done = await visit.ask("POST", f"{_url(visit)}rotate/")
    if not done["troubles"]:
        return await _stay(visit)
    return await _page(visit, await _look(visit) | {"troubles": done["troubles"]})


async def _reseal(visit: Visit) -> Response:
    """Begin a job for each schema that has something under an older key."""
    for schema in _older(await _look(visit)):
        try:
            await visit.ask("POST", f"{schema['schema']}reseal/")
        except Conflict as error:
            if error.reason not in _LEFT_OUT:
                raise
    return visit.go("/jobs/")


async def _forget(visit: Visit) -> Response:
    done = await visit.ask("POST", f"{_url(visit)}forget/", {})
    return await _stay(visit) if done["forgotten"] else await _page(visit, done)


_STEPS = {"rotate": _rotate, "reseal": _reseal, "forget": _forget}


routes = [page("/datasets/{id}/keys/", show, methods=("GET", "POST"))]
