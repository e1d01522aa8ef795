"""The people who read and write a dataset or one of its schemas, by the organization's roster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from starlette.responses import Response

from encrypted_records.errors import ErsError, NotAuthenticated
from encrypted_records.proxy.pages.page import Visit, page


async def show(visit: Visit) -> Response:
    """The people and services of a dataset, and whether members may ask for access; a browser that
    was not let in is told so.
    """
    problem: ErsError | None = None
    if visit.sends:
        listed = visit.text("do") == "list"
        try:
            await visit.ask("PUT", f"/api/datasets/{visit.id}/listed/", {"listed": listed})
        except ErsError as error:
            problem = error
        else:
            return visit.go(f"/datasets/{visit.id}/people/")
    dataset = await visit.ask("GET", f"/api/datasets/{visit.id}/")
    return await _show(visit, dataset, None, problem)


async def show_of_schema(visit: Visit) -> Response:
    """Show the people of the dataset who have a right in the schema."""
    schema = await visit.ask("GET", f"/api/schemas/{visit.id}/")
    return await _show(visit, await visit.ask("GET", schema["dataset"]), schema)


async def _show(
    visit: Visit,
    dataset: dict[str, Any],
    schema: dict[str, Any] | None,
    problem: ErsError | None = None,
) -> Response:
    people: dict[str, Any] | None = None
    try:
        people = await visit.ask("GET", f"{dataset['organization']}people/")
    except NotAuthenticated as error:
        if error.reason not in ("device_needed", "device_unknown"):
            raise
    url = str(dataset["url"])
    values: dict[str, Any] = {
        "dataset": dataset,
        "schema": schema,
        "organization": dataset["organization"].removeprefix("/api"),
        "people": people,
        "readers": [] if people is None else list(_readers(people, url, schema)),
        "listed": any(
            named["dataset"] == url and named["listed"]
            for named in (people or {}).get("datasets", ())
        ),
        "invitations": [
            invitation
            for invitation in ({} if people is None else people).get("invitations", ())
            if any(share["dataset"] == url for share in invitation["shares"])
        ],
        "owns": any(
            person["you"] and person["role"] == "owner"
            for person in (people or {}).get("people", ())
        ),
    }
    if problem is not None:
        return visit.problem(problem, "dataset_people.html", **values)
    return visit.render("dataset_people.html", **values)


def _readers(
    people: Mapping[str, Any], dataset: str, schema: Mapping[str, Any] | None
) -> Iterator[dict[str, Any]]:
    """A line for each right in a dataset, or in one of its schemas; owners have all rights."""
    for person in people["people"]:
        if person["role"] == "owner":
            yield {"who": person, "role": "owner", "schemas": None, "since": person["owner_since"]}
        for share in person["shares"]:
            if share["dataset"] == dataset and _covers(share, schema):
                yield {"who": person, **share}


def _covers(share: Mapping[str, Any], schema: Mapping[str, Any] | None) -> bool:
    named = [schema["schema"] for schema in share.get("schemas") or ()]
    return schema is None or not named or schema["url"] in named


routes = [
    page("/datasets/{id}/people/", show, methods=("GET", "POST")),
    page("/schemas/{id}/people/", show_of_schema),
]
