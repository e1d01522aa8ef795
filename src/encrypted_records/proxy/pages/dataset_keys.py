"""The keys of a dataset: a new one is begun, everything is sealed under it, and those before it are
forgotten; each by a form of its own."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from encrypted_records.errors import Conflict, ErsError
from encrypted_records.proxy.pages.page import Visit, page

_TEMPLATE = "dataset_keys.html"
#: Why a schema's records are not sealed again now: somebody does it, or there are none.
_LEFT_OUT = ("reseal_under_way", "nothing_to_reseal")


def _url(visit: Visit) -> str:
    return f"/api/datasets/{visit.id}/"


async def show(visit: Visit) -> Response:
    """Says what older keys still open, and takes the next step of letting them go."""
    if not visit.sends:
        return visit.render(_TEMPLATE, **await _shown(visit))
    try:
        return await _STEPS.get(visit.text("do"), _stay)(visit)
    except Conflict as error:
        return visit.problem(error, _TEMPLATE, **await _shown(visit))


async def _shown(visit: Visit) -> dict[str, Any]:
    """What the template takes. Nobody is shown it who is not an owner.

    Raises:
        ErsError: as the endpoint answers; there are no keys to show then.
    """
    dataset = await visit.ask("GET", _url(visit))
    keys = await visit.ask("POST", f"{_url(visit)}forget/", {"dry_run": True})
    listed = await visit.every("/api/schemas/", dataset=dataset["id"])
    names = {one["url"]: one["name"] for one in listed}
    schemas = [one | {"name": names.get(one["schema"], "")} for one in keys["schemas"]]
    older = [one for one in schemas if not one["present"]]
    return {
        "dataset": dataset,
        "keys": keys,
        "schemas": schemas,
        "older": older,
        "records": sum(one["records"] for one in older),
        "waits_for": (),
    }


async def _stay(visit: Visit) -> Response:
    return visit.go(f"/datasets/{visit.id}/keys/")


async def _rotate(visit: Visit) -> Response:
    await visit.ask("POST", f"{_url(visit)}rotate/")
    return await _stay(visit)


async def _reseal(visit: Visit) -> Response:
    """Begin a job for each schema that has something under an older key."""
    shown = await _shown(visit)
    for one in shown["older"]:
        try:
            await visit.ask("POST", f"{one['schema']}reseal/")
        except ErsError as error:
            if error.reason not in _LEFT_OUT:
                raise
    return visit.go("/jobs/")


async def _forget(visit: Visit) -> Response:
    done = await visit.ask("POST", f"{_url(visit)}forget/", {})
    if done["forgotten"]:
        return await _stay(visit)
    shown = await _shown(visit)
    left = done["erasing"]["schemas"]
    return visit.render(_TEMPLATE, **shown | {"waits_for": [one["left"] for one in left]})


_STEPS = {"rotate": _rotate, "reseal": _reseal, "forget": _forget}


routes = [page("/datasets/{id}/keys/", show, methods=("GET", "POST"))]
