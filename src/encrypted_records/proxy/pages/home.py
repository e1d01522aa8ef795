"""The start page: first steps for an empty account, an overview for others.

An overview must not wait for its slowest part: the state of all schemas is requested concurrently,
and missing answers are left out after two seconds.

A new account may load a thousand real rows as an example. They are imported like any file, by the
endpoints: a dataset, a schema and a batch job.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import Any

from starlette.responses import Response

from encrypted_records import runtime
from encrypted_records.client.proxy.connection import ShownDataset, ShownSchema
from encrypted_records.client.proxy.jobs import JobPage
from encrypted_records.client.sdk.names import Placed
from encrypted_records.errors import Closed, ErsError, NotAuthenticated, NotFound
from encrypted_records.model.resources import InvitationResource, OrganizationResource
from encrypted_records.proxy.pages.formatting import age
from encrypted_records.proxy.pages.frame import keep_count
from encrypted_records.proxy.pages.jobs import JobView
from encrypted_records.proxy.pages.organizations import (
    AuditLine,
    AuditPage,
    lines_of,
    own_organizations,
)
from encrypted_records.proxy.pages.page import Visit, page
from encrypted_records.proxy.pages.people import owns
from encrypted_records.proxy.pages.questions import BAR_MINUTES, SearchCounts

_EXAMPLE_FOLDER = files("encrypted_records") / "example_data"


def example_rows() -> bytes:
    """The CSV file, with its header."""
    return gzip.decompress(_EXAMPLE_FOLDER.joinpath("census.csv.gz").read_bytes())


def example_definition() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(
        _EXAMPLE_FOLDER.joinpath("census.schema.json").read_text("utf-8")
    )
    return loaded


async def store_example(visit: Visit) -> Response:
    """Import the example, and redirect to the page of the job."""
    organizations = await own_organizations(visit)
    dataset = await visit.ask(
        "POST",
        "/api/datasets/",
        {
            "name": "Census (example)",
            "description": "A thousand answers to the census of the USA in 1994.",
            "organization": organizations[0].url,
        },
    )
    schema = await visit.ask(
        "POST",
        "/api/schemas/",
        {"name": "People", "dataset": dataset["url"], "schema": example_definition()},
    )
    # The last entry of the header names the schema of the rows.
    header, _, below = example_rows().partition(b"\n")
    file = header.rstrip(b"\r") + b",schema_id:" + schema["id"].encode() + b"\n" + below
    headers = {"content-type": "text/csv"}
    made = await visit.answer("POST", "/api/jobs/upload/", file, headers=headers)
    return visit.go(f"/jobs/{made.json()['job_id']}/")


# --- the overview ---------------------------------------------------------------------------------

WAIT_SECONDS = 2.0
#: Maximum number of schemas, running jobs and audit log entries that are shown.
MOST_SCHEMAS = 24
MOST_JOBS = 5
MOST_LINES = 5
#: Seconds after which a backup should be tried again.
TRIED_SECONDS = 90 * 86_400
_TRY = "/keyring/#try-title"


@dataclass(frozen=True, slots=True)
class SchemaActivity:
    """The state of a schema by its log: live records, rows of changed and deleted records, rows
    stored on each of the last days, the time of the last change, and the minimum size of the stored
    data in bytes.
    """

    records: int
    dead: int
    days: Sequence[int]
    last: int | None
    size: int


@dataclass(frozen=True, slots=True)
class ActivityBar:
    """A bar of a picture: the rows of a day, or the searches of two minutes. ``height`` is in
    percent of the highest bar.
    """

    name: str
    count: int
    height: float


@dataclass(frozen=True, slots=True)
class Card:
    """A schema on the overview; ``state`` is None if it is unknown."""

    schema: ShownSchema
    dataset: ShownDataset | None
    state: SchemaActivity | None

    @property
    def records(self) -> int | None:
        return None if self.state is None else self.state.records


@dataclass(frozen=True, slots=True)
class Step:
    """A step that protects records from loss or disclosure; ``label`` is the text of its link."""

    done: bool
    text: str
    path: str
    label: str


@dataclass(frozen=True, slots=True)
class Safety:
    """The other people who can read the records, from the organization's signed list: names of
    people and services; None if there are several organizations, or the list was not shown.
    ``asking``: the number of access requests that wait for the visitor, an owner; ``path``, their
    page.
    """

    others: Sequence[str] | None
    steps: Sequence[Step]
    asking: int = 0
    path: str = ""

    @property
    def done(self) -> int:
        return sum(step.done for step in self.steps)


async def start(visit: Visit) -> Response:
    datasets = await visit.every(ShownDataset)
    schemas = await visit.every(ShownSchema)
    invitations = await visit.every(InvitationResource, "/api/invitations/")
    belongs = bool(datasets) or bool(await visit.every(OrganizationResource))
    filled = [schema for schema in schemas if schema.key_id is not None]
    if filled:
        return await _overview(visit, datasets, schemas, filled, invitations)
    done = {
        "backup": await _is_backed_up(visit),
        "dataset": bool(datasets),
        "schema": bool(schemas),
        "upload": False,
    }
    return visit.render(
        "first_steps.html",
        done=done,
        next=next(name for name, is_done in done.items() if not is_done),
        dataset=_newest(datasets),
        schema=_newest(schemas),
        invitations=invitations,
        nowhere_yet=not belongs,
    )


async def _overview(
    visit: Visit,
    datasets: Sequence[ShownDataset],
    schemas: Sequence[ShownSchema],
    filled: Sequence[ShownSchema],
    invitations: Sequence[InvitationResource],
) -> Response:
    by_url = {dataset.url: dataset for dataset in datasets}
    newest = sorted(filled, key=lambda schema: schema.id, reverse=True)
    shown = newest[:MOST_SCHEMAS]
    states = await states_of(visit, shown)
    cards = [Card(schema, by_url.get(schema.dataset), states.get(schema.id)) for schema in shown]
    known = list(states.values())
    keyring = await _keyring(visit)
    complete = len(known) == len(filled)
    return visit.render(
        "home.html",
        cards=cards,
        more=len(filled) - len(cards),
        # Shown only if it is the complete sum.
        records=sum(state.records for state in known) if complete else None,
        size=sum(state.size for state in known) if complete else None,
        last=max((state.last for state in known if state.last), default=None),
        days=_days(known),
        searches=_searches(visit),
        complete=complete,
        keyring=keyring,
        safety=await _safety(visit, keyring),
        datasets=datasets,
        empty=[schema for schema in schemas if schema.key_id is None],
        invitations=invitations,
        jobs=await _running_jobs(visit, schemas),
        lines=await _latest(visit, [*datasets, *schemas]),
    )


async def states_of(visit: Visit, schemas: Sequence[ShownSchema]) -> dict[str, SchemaActivity]:
    """States of schemas by id; failed or late answers are left out."""

    async def ask(schema: ShownSchema) -> tuple[str, SchemaActivity] | None:
        try:
            state = await visit.ask("GET", "/api/records/status/", params={"schema": schema.url})
        except NotAuthenticated:  # this browser has to be registered first
            raise
        except ErsError:  # its own page shows a missing key or a broken log
            return None
        keep_count(visit.desk, schema.id, state["records"])
        past = state["activity"]
        return schema.id, SchemaActivity(
            state["records"], state["dead"], past["days"], past["last"], past["bytes"]
        )

    if not schemas:
        return {}
    tasks = [asyncio.create_task(ask(schema)) for schema in schemas]  # noqa: TID251 # ends with its request
    try:
        answered, _ = await asyncio.wait(tasks, timeout=WAIT_SECONDS)
    finally:
        for task in tasks:
            task.cancel()
    found = [task.result() for task in answered]
    return dict(state for state in found if state is not None)


def _days(states: Sequence[SchemaActivity]) -> list[ActivityBar]:
    """The last days, today at the end; empty if no row was stored on any of them."""
    rows = [sum(counts) for counts in zip(*(state.days for state in states), strict=True)]
    today = datetime.fromtimestamp(runtime.wall(), UTC).date()
    return _bars(rows, lambda ago: f"{today - timedelta(days=ago):%d %b}")


def _searches(visit: Visit) -> list[ActivityBar]:
    """The searches of this session in the last hour, ending with the latest; empty if there were
    none.
    """
    known = visit.desk.find(("searches",), SearchCounts)
    return _bars(
        known.bars() if known else [],
        lambda ago: f"{BAR_MINUTES * ago} to {BAR_MINUTES * (ago + 1)} minutes ago",
    )


def _bars(counts: Sequence[int], name: Callable[[int], str]) -> list[ActivityBar]:
    """
    Args:
        name: of the bar that is this number of bars before the last.
    """
    highest = max(counts, default=0)
    if not highest:
        return []
    return [
        ActivityBar(name(len(counts) - 1 - at), count, 100 * count / highest)
        for at, count in enumerate(counts)
    ]


async def _keyring(visit: Visit) -> Any:
    """The status of the keys; None if the keyring is not open."""
    if visit.frame is None or visit.frame.keyring != "open":
        return None
    try:
        return await visit.ask("GET", "/api/keyring/")
    except NotAuthenticated:
        raise
    except ErsError:
        return None


async def _safety(visit: Visit, keyring: Any) -> Safety | None:
    """The people who can read the records, and open steps; None if the keyring is not open."""
    if keyring is None:
        return None
    steps = [
        Step(True, "Your keyring is backed up.", "", "")
        if keyring["backup_confirmed"]
        else Step(False, "Your keyring is not backed up.", "/keyring/", "Write down its words"),
        Step(True, "A passphrase protects your keyring.", "", "")
        if keyring["wrapping"] == "passphrase"
        else Step(False, "No passphrase protects your keyring.", "/keyring/", "Protect it"),
        weigh_trial(keyring["restore_tried"], runtime.wall()),
    ]
    places = visit.frame.organizations if visit.frame is not None else ()
    if len(places) != 1:
        return Safety(None, steps)
    try:
        people = await visit.ask("GET", f"/api/organizations/{places[0].id}/people/")
    except ErsError:
        return Safety(None, steps)
    return weigh_people(people, steps, f"/organizations/{places[0].id}/")


def weigh_trial(tried: int | None, now: float) -> Step:
    """Whether a restore of the keyring from its backup should be tried again.

    Args:
        tried: time of the last success, in seconds since 1970.
    """
    if tried is None:
        return Step(False, "You never tried your keyring's backup.", _TRY, "Try to restore it")
    text = f"Your keyring's backup was last tried {age(tried)} ago."
    if now - tried > TRIED_SECONDS:
        return Step(False, text, _TRY, "Try it again")
    return Step(True, text, "", "")


def weigh_people(people: Mapping[str, Any], steps: Sequence[Step], path: str) -> Safety:
    """The other readers, and whether a second owner is recommended.

    Args:
        people: people of an organization, as the proxy shows them. An organization without a list
            does not show who has its keys.
        path: path of its page.
    """
    if not people["number"]:
        return Safety(None, steps)
    readers = [
        person for person in people["people"] if person["role"] == "owner" or person["shares"]
    ]
    owners = sum(person["role"] == "owner" for person in people["people"])
    if owners > 1:
        owned = Step(True, f"Your organization has {owners} owners.", "", "")
    elif owns(people):
        owned = Step(
            False, "Nobody else owns your organization.", path, "Make another member an owner"
        )
    else:
        owned = Step(False, "Your organization has only one owner.", path, "See its people")
    others = [str(reader["name"]) for reader in readers if not reader["you"]]
    return Safety(others, [*steps, owned], len(people["requests"]) if owns(people) else 0, path)


async def _running_jobs(visit: Visit, schemas: Sequence[ShownSchema]) -> list[JobView]:
    try:
        listed = await visit.read(JobPage, "/api/jobs/", limit="50")
    except ErsError:
        return []
    names = {schema.id: schema.name for schema in schemas}
    views = [JobView(job, names) for job in listed.results]
    return [view for view in views if view.live][:MOST_JOBS]


async def _latest(visit: Visit, named: Sequence[ShownDataset | ShownSchema]) -> list[AuditLine]:
    """The newest lines of the first organization's audit log, for its owners."""
    if visit.frame is None or not visit.frame.organizations:
        return []
    path = f"/api/organizations/{visit.frame.organizations[0].id}/audit-log/"
    try:
        entries = await visit.read(AuditPage, path, limit="40")
    except ErsError:  # for owners only
        return []
    return lines_of(entries.results, {entry.url: entry.name for entry in named})[:MOST_LINES]


async def _is_backed_up(visit: Visit) -> bool:
    try:
        keyring = await visit.ask("GET", "/api/keyring/")
    except NotFound:
        return False
    except Closed:
        # The page of the keyring explains what to do.
        return True
    return bool(keyring["backup_confirmed"])


def _newest(items: list[Placed]) -> Placed | None:
    """Identifiers sort by creation."""
    return max(items, key=lambda item: item.id, default=None)


async def state(visit: Visit) -> Response:
    """Whether the API answers, for the banner on top of pages; needs no session."""
    await visit.ask("GET", "/api/status/")
    return visit.render("said.html", title="The API answers", lines=[], link=("/", "Overview"))


async def nothing(_visit: Visit) -> Response:
    raise NotFound("there is no such page")


routes = [
    page("/", start),
    page("/state/", state, public=True),
    page("/example/", store_example, methods=("POST",)),
]
#: Registered after all other routes.
last = page("/{path:path}", nothing, public=True)
