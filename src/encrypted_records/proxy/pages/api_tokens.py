"""API tokens: make one, which is shown once, see when they were used, revoke them."""

from __future__ import annotations

import re
from typing import Any

from starlette.responses import Response

from encrypted_records.errors import ErsError, NotFound
from encrypted_records.model import ids
from encrypted_records.proxy.pages import second_factor
from encrypted_records.proxy.pages.page import Visit, page

PATH = "/account/tokens/"
_ID = re.compile(ids.PATTERN)
#: The name of the tick of a dataset begins so.
_TICK = "dataset-"
_DAY = 86_400


async def tokens(visit: Visit) -> Response:
    made: dict[str, Any] | None = None
    problem: ErsError | None = None
    if visit.sends:
        do, _, target = visit.text("do").partition(":")
        try:
            if do == "revoke":
                await _revoke(visit, target)
                return visit.go(PATH)
            made = await visit.ask("POST", "/api/tokens/", _asked(visit))
        except ErsError as error:
            problem = error
    datasets = await visit.every("/api/datasets/")
    values: dict[str, Any] = {
        "made": made,
        "tokens": await visit.every("/api/tokens/"),
        "second_factor": await second_factor.state(visit),
        "datasets": datasets,
        "names": {dataset["url"]: dataset["name"] for dataset in datasets},
        # Sending the form again must not make the same token again.
        "typed": {} if made else visit.form,
    }
    if problem is not None:
        return visit.problem(problem, "api_tokens.html", **values)
    return visit.render("api_tokens.html", **values)


def _asked(visit: Visit) -> dict[str, Any]:
    days = visit.text("days")
    is_number = days.isascii() and days.isdecimal() and len(days) < 9
    asked: dict[str, Any] = {
        "name": visit.text("name"),
        "scope": visit.text("scope"),
        "expires_in": int(days) * _DAY if is_number else 0,
        "password": visit.text("password"),
        "code": visit.text("code"),
    }
    if visit.text("reach") != "all":
        # Also where none is ticked: the API refuses that, and all would be more than was asked for.
        ticked = [name.removeprefix(_TICK) for name in visit.form if name.startswith(_TICK)]
        asked["datasets"] = [f"/api/datasets/{dataset}/" for dataset in ticked]
    return asked


async def _revoke(visit: Visit, token: str) -> None:
    if not _ID.fullmatch(token):
        raise NotFound("there is no such token")
    await visit.ask("DELETE", f"/api/tokens/{token}/")


routes = [page(PATH, tokens, methods=("GET", "POST"))]
