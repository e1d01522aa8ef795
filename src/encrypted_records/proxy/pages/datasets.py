"""Datasets: browse and find, create, change settings, replace keys, list people, delete with care.

Datasets, schemas and pages are found by a few letters of their names: on the page of all datasets,
and in the search box that a script opens over any page. Typed text is sent in the form's body.

A settings form contains the version that it has shown, so that a second tab, or a second person,
overwrites nothing silently.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from encrypted_records import errors
from encrypted_records.client.proxy.connection import ShownDataset, ShownSchema
from encrypted_records.client.proxy.sharing import People, covers, readers_of
from encrypted_records.client.sdk.condition_language import parse
from encrypted_records.proxy.pages import frame
from encrypted_records.proxy.pages.home import MOST_SCHEMAS, SchemaActivity, states_of
from encrypted_records.proxy.pages.organizations import own_organizations
from encrypted_records.proxy.pages.page import Visit, moved, page
from encrypted_records.proxy.pages.questions import forget_questions

_TEXTS = ("name", "description")


async def save_texts(visit: Visit, path: str) -> None:
    """Store the texts of the form, unless they were changed since they were shown.

    Args:
        path: the path of the dataset or schema.

    Raises:
        Conflict: the texts were changed; nothing is stored.
        ErsError: the change was refused.
    """
    sent = {name: visit.text(name) for name in _TEXTS}
    etag = visit.text("etag")
    try:
        await visit.answer("PATCH", path, sent, headers={"if-match": etag} if etag else {})
    except errors.PreconditionFailed:
        raise _ChangedSince(
            "somebody has changed this since you opened the page, so nothing was saved",
            hint="the stored values are below; save yours if you still want them",
        ) from None


class _ChangedSince(errors.Conflict):
    """The stored texts were changed since they were shown."""


def stored_since(visit: Visit, stored: object, etag: str) -> dict[str, Any]:
    """The version that the form of texts is for, and the stored texts if they were changed since:
    saved again, the form replaces them.
    """
    if isinstance(visit.refusal, _ChangedSince):
        return {"stored": stored, "etag": etag}
    return {"stored": None, "etag": visit.text("etag", etag)}


# --- finding datasets, schemas and pages ----------------------------------------------------------

_PAGES = (
    ("/", "Overview"),
    ("/datasets/", "Datasets"),
    ("/datasets/new/", "New dataset"),
    ("/sql/", "SQL"),
    ("/jobs/", "Jobs"),
    ("/keyring/", "Keyring"),
    ("/organizations/", "People, invitations and services of an organization"),
    ("/audit-log/", "Audit log"),
    ("/account/", "Account and password"),
    ("/account/tokens/", "API tokens"),
    ("/account/second-factor/", "Second factor"),
    ("/docs/", "Reference of the HTTP API"),
)


@dataclass(frozen=True, slots=True)
class Destination:
    """A destination of quick navigation; ``path`` is relative to the secret path."""

    path: str
    label: str
    kind: str


def list_targets(around: frame.PageFrame) -> list[Destination]:
    """The targets of a page: the datasets and schemas of the menu, and all pages."""
    targets: list[Destination] = []
    for dataset in around.datasets:
        for schema in dataset.schemas:
            base = f"/schemas/{schema.id}/"
            if schema.filled:
                targets.append(Destination(f"{base}search/", schema.name, "records"))
            targets.append(Destination(f"{base}fields/", f"Fields of {schema.name}", "schema"))
            targets.append(Destination(f"{base}upload/", f"Import into {schema.name}", "action"))
            targets.append(Destination(f"{base}add/", f"Add a record to {schema.name}", "action"))
        targets.append(Destination(f"/datasets/{dataset.id}/", dataset.name, "dataset"))
    targets += [Destination(path, label, "page") for path, label in _PAGES]
    return targets


def find_matching(targets: list[Destination], typed: str) -> list[Destination]:
    """The targets whose labels contain every typed word; labels that begin with the text come
    first.
    """
    words = typed.casefold().split()
    found = [target for target in targets if all(word in target.label.casefold() for word in words)]
    begins = typed.strip().casefold()
    return sorted(found, key=lambda target: not target.label.casefold().startswith(begins))


# --- pages of datasets ----------------------------------------------------------------------------

#: Records per schema in a search of the dataset.
_FIRST = 5
_MOST_FOUND = 12


def _url(visit: Visit) -> str:
    return f"/api/datasets/{visit.id}/"


async def list_all(visit: Visit) -> Response:
    """All datasets; for a sent form, those whose names contain the typed letters."""
    wanted = visit.text("wanted").strip()[:200]
    targets = list_targets(await frame.keep_fresh(visit, visit.desk)) if wanted else []
    found = find_matching(targets, wanted)
    if wanted:
        shown: dict[str, Any] = {"targets": found[:_MOST_FOUND], "more": len(found) - _MOST_FOUND}
        return visit.render("datasets.html", wanted=wanted, **shown)
    schemas = await visit.every(ShownSchema)
    return visit.render(
        "datasets.html",
        wanted="",
        datasets=await visit.every(ShownDataset),
        schemas=schemas,
        states=await _states(visit, schemas),
    )


async def show(visit: Visit) -> Response:
    dataset = await visit.read(ShownDataset)
    schemas = await visit.every(ShownSchema, dataset=dataset.id)
    return visit.render(
        "dataset.html", dataset=dataset, schemas=schemas, states=await _states(visit, schemas)
    )


async def _states(visit: Visit, schemas: list[ShownSchema]) -> dict[str, SchemaActivity]:
    """States by identifier of the newest schemas with records, as far as they are known in time."""
    filled = [schema for schema in schemas if schema.key_id is not None]
    newest = sorted(filled, key=lambda schema: schema.id, reverse=True)[:MOST_SCHEMAS]
    try:
        return await states_of(visit, newest)
    except errors.NotAuthenticated as error:
        if error.reason not in ("device_needed", "device_unknown"):
            raise
        return {}  # an unregistered browser sees no numbers


async def search(visit: Visit) -> Response:
    """Search all schemas of the dataset with one condition, typed as on the command line."""
    dataset = await visit.read(ShownDataset)
    typed = visit.text("condition")
    shown: dict[str, Any] = {"dataset": dataset, "condition": typed, "found": None, "more": False}
    if not typed.strip():
        return visit.render("dataset_search.html", **shown)
    try:
        body = {"where": parse(typed), "limit": _FIRST}
        answer = await visit.ask("POST", f"{_url(visit)}search/", body)
    except errors.InvalidQuery as error:
        return visit.problem(error, "dataset_search.html", **shown)
    shown |= {"found": answer["results"], "more": answer["next_cursor"] is not None}
    return visit.render("dataset_search.html", **shown)


async def create(visit: Visit) -> Response:
    organizations = await own_organizations(visit)
    sent = {name: visit.text(name) for name in ("name", "description", "organization")}
    if not visit.sends:
        shown: dict[str, Any] = {"organizations": organizations, "stored": None, "etag": ""}
        return visit.render("dataset_form.html", typed=sent, **shown)
    stored = await visit.ask("POST", "/api/datasets/", sent)
    return visit.go(f"/datasets/{stored['id']}/")


async def settings(visit: Visit) -> Response:
    """Change the version that the page has shown. If it was changed since, the form shows the typed
    texts next to the stored texts.
    """
    if visit.sends:
        await save_texts(visit, _url(visit))
        return visit.go(f"/datasets/{visit.id}/")
    answer = await visit.answer("GET", _url(visit))
    dataset = answer.read(ShownDataset)
    schemas = await visit.every(ShownSchema, dataset=visit.id)
    return visit.render(
        "dataset_form.html",
        dataset=dataset,
        organizations=[],
        deletable=answer.allows("DELETE"),
        filled=any(schema.key_id is not None for schema in schemas),
        typed={name: visit.text(name, getattr(dataset, name)) for name in _TEXTS},
        **stored_since(visit, dataset, answer.header("etag")),
    )


async def delete(visit: Visit) -> Response:
    dataset = await visit.read(ShownDataset)
    schemas = await visit.every(ShownSchema, dataset=dataset.id)
    goes_with, forgotten = [schema.name for schema in schemas], [schema.id for schema in schemas]
    back = f"/datasets/{visit.id}/"
    return await delete_named(visit, dataset, goes_with, forgotten, back=back, then="/datasets/")


async def delete_named(
    visit: Visit,
    thing: ShownDataset | ShownSchema,
    goes_with: Sequence[str],
    schemas: Sequence[str],
    *,
    back: str,
    then: str,
) -> Response:
    """Delete a dataset or schema. Its name is asked for if it is not empty: a click is too easily
    made.

    Args:
        schemas: identifiers of the schemas whose saved questions are deleted.
        back: the page that keeps it; ``then``, the page after the deletion.
    """
    kind = "dataset" if isinstance(thing, ShownDataset) else "schema"
    is_wrong = bool(visit.sends and goes_with and visit.text("name") != thing.name)
    if is_wrong or not visit.sends:
        shown = {"kind": kind, "thing": thing, "goes_with": goes_with, "back": back}
        return visit.render("delete.html", 400 if is_wrong else 200, wrong=is_wrong, **shown)
    params = {"cascade": "true"} if goes_with else {}
    await visit.ask("DELETE", f"/api/{kind}s/{visit.id}/", params=params)
    await forget_questions(visit, schemas)
    return visit.go(then)


# --- keys: rotate, re-encrypt records, forget older keys ------------------------------------------

#: Reasons why a schema's records are not re-encrypted now: it is under way, or there are none.
_NOT_RESEALED = ("reseal_under_way", "nothing_to_reseal")


async def show_keys(visit: Visit) -> Response:
    """Show what older keys still decrypt, and take the next step to forget them."""
    if visit.sends:
        return await _KEY_STEPS.get(visit.text("do"), _back_to_keys)(visit)
    return await _keys_page(visit, await _look_at_keys(visit))


async def _look_at_keys(visit: Visit) -> dict[str, Any]:
    """The uses of the older keys, which only owners can see."""
    keys: dict[str, Any] = await visit.ask("POST", f"{_url(visit)}forget/", {"dry_run": True})
    return keys


async def _keys_page(visit: Visit, keys: dict[str, Any]) -> Response:
    """The page for an answer about the keys."""
    dataset = await visit.read(ShownDataset)
    listed = await visit.every(ShownSchema, dataset=dataset.id)
    names = {entry.url: entry.name for entry in listed}
    schemas = [schema | {"name": names.get(schema["schema"], "")} for schema in keys["schemas"]]
    older = _older(keys)
    return visit.render(
        "dataset_keys.html",
        dataset=dataset,
        keys=keys,
        schemas=schemas,
        older=older,
        records=sum(group["records"] for group in older),
        waits_for=[key["left"] for key in keys.get("erasing", {}).get("schemas", ())],
        troubles=keys.get("troubles", ()),
    )


def _older(keys: dict[str, Any]) -> list[dict[str, Any]]:
    """The schemas with data under an older key."""
    return [schema for schema in keys["schemas"] if not schema["present"]]


async def _back_to_keys(visit: Visit) -> Response:
    return visit.go(f"/datasets/{visit.id}/keys/")


async def _rotate(visit: Visit) -> Response:
    done = await visit.ask("POST", f"{_url(visit)}rotate/")
    if not done["troubles"]:
        return await _back_to_keys(visit)
    return await _keys_page(visit, await _look_at_keys(visit) | {"troubles": done["troubles"]})


async def _reseal(visit: Visit) -> Response:
    """Begin a job for each schema with data under an older key."""
    for schema in _older(await _look_at_keys(visit)):
        try:
            await visit.ask("POST", f"{schema['schema']}reseal/")
        except errors.Conflict as error:
            if error.reason not in _NOT_RESEALED:
                raise
    return visit.go("/jobs/")


async def _forget(visit: Visit) -> Response:
    done = await visit.ask("POST", f"{_url(visit)}forget/", {})
    return await _back_to_keys(visit) if done["forgotten"] else await _keys_page(visit, done)


_KEY_STEPS = {"rotate": _rotate, "reseal": _reseal, "forget": _forget}


# --- people, by the organization's roster ---------------------------------------------------------


async def show_people(visit: Visit) -> Response:
    """The people and services of a dataset, and whether members may request access; with a message
    in a browser that is not registered.
    """
    if visit.sends:
        listed = {"listed": visit.text("do") == "list"}
        await visit.ask("PUT", f"{_url(visit)}listed/", listed)
        return visit.go(f"/datasets/{visit.id}/people/")
    return await _show_readers(visit, await visit.read(ShownDataset), None)


async def show_people_of_schema(visit: Visit) -> Response:
    """Show the people of the dataset who have a right in the schema."""
    schema = await visit.read(ShownSchema)
    return await _show_readers(visit, await visit.read(ShownDataset, schema.dataset), schema)


async def _show_readers(
    visit: Visit, dataset: ShownDataset, schema: ShownSchema | None
) -> Response:
    people: People | None = None
    try:
        people = await visit.read(People, f"{dataset.organization}people/")
    except errors.NotAuthenticated as error:
        if error.reason not in ("device_needed", "device_unknown"):
            raise
    shown: dict[str, Any] = {}
    if people is not None:
        url = dataset.url
        shown["readers"] = list(readers_of(people, url, None if schema is None else schema.url))
        shown["listed"] = any(named.dataset == url and named.listed for named in people.datasets)
        shown["invitations"] = [
            invitation
            for invitation in people.invitations
            if any(covers(share, url) for share in invitation.shares)
        ]
        shown["owns"] = any(person.you and person.role == "owner" for person in people.people)
    return visit.render(
        "dataset_people.html",
        dataset=dataset,
        schema=schema,
        organization=dataset.organization.removeprefix("/api"),
        people=people,
        **shown,
    )


routes = [
    page("/datasets/", list_all, methods=("GET", "POST"), changes=False),
    moved("/find/", "/datasets/"),
    page("/datasets/new/", create, methods=("GET", "POST")),
    page("/datasets/{id}/", show),
    page("/datasets/{id}/search/", search, methods=("GET", "POST"), changes=False),
    page("/datasets/{id}/settings/", settings, methods=("GET", "POST")),
    moved("/datasets/{id}/edit/", "/datasets/{id}/settings/"),
    page("/datasets/{id}/delete/", delete, methods=("GET", "POST")),
    page("/datasets/{id}/keys/", show_keys, methods=("GET", "POST")),
    page("/datasets/{id}/people/", show_people, methods=("GET", "POST")),
    page("/schemas/{id}/people/", show_people_of_schema),
]
