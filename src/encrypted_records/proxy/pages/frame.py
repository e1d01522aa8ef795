"""The frame around every page of a logged-in user: navigation and status.

- It is part of every page, so it must never prevent a page from being shown: values that cannot be
  loaded are shown as unknown, and recent values stay.
- It is loaded at most every few seconds, and after a form was sent, which may have changed it. In
  between it is cached on the desk of the session.
- Names and numbers are shown as reported by the API. Entries with a malformed identifier are left
  out.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from encrypted_records import runtime
from encrypted_records.client.proxy.connection import T
from encrypted_records.client.proxy.keyring import Devices, KeyringInfo
from encrypted_records.errors import Closed, ErsError, NotAuthenticated, NotFound
from encrypted_records.model import ids, resources
from encrypted_records.proxy.http.sessions import Desk

FRESH_SECONDS = 10.0
#: Maximum seconds that a page waits for its frame.
WAIT_SECONDS = 3.0
MOST_DATASETS = 40
MOST_SCHEMAS = 200
#: Maximum characters of a name, whatever the API sends.
MOST_CHARACTERS = 200
_NAME = ("frame",)
_Organizations = resources.ListPage[resources.OrganizationResource]
_AuditLog = resources.ListPage[resources.AuditEntryResource]
_Datasets = resources.ListPage[resources.DatasetResource]
_Schemas = resources.ListPage[resources.SchemaResource]
_Invitations = resources.ListPage[resources.InvitationResource]
_ID = re.compile(ids.PATTERN)


class Asker(Protocol):
    async def read(self, kind: type[T], path: str, **params: str) -> T: ...


@dataclass(frozen=True, slots=True)
class NavigationItem:
    """An organization, a dataset or a schema."""

    id: str
    name: str
    #: organization of a dataset
    organization: str = ""
    #: schemas of a dataset
    schemas: tuple[NavigationItem, ...] = ()
    #: whether records were stored in a schema
    filled: bool = False


@dataclass(frozen=True, slots=True)
class LeftOrganization:
    """An organization that the visitor no longer belongs to; ``by`` is the e-mail address of the
    remover, empty if it is not known, or if the visitor left.
    """

    id: str
    name: str
    by: str = ""


@dataclass(frozen=True, slots=True)
class PageFrame:
    """Attributes:
    more: whether there are more datasets or schemas than listed.
    api_ms: response time of the API in milliseconds; None if it does not answer.
    keyring: ``open``, ``locked``, ``none`` (not made yet), ``closed`` (this browser is not one
        of its devices) or ``unknown``.
    backed_up: whether every key of the keyring has a confirmed backup.
    left: organizations that the visitor has left, or was removed from, during this session.
    """

    organizations: tuple[NavigationItem, ...] = ()
    datasets: tuple[NavigationItem, ...] = ()
    more: bool = False
    invitations: int = 0
    api_ms: int | None = None
    keyring: str = "unknown"
    backed_up: bool = True
    left: tuple[LeftOrganization, ...] = ()
    found_at: float = field(default=float("-inf"), repr=False)

    def name_of(self, dataset: str) -> str:
        """The name of a dataset; empty if it is not listed."""
        return next((dataset_.name for dataset_ in self.datasets if dataset_.id == dataset), "")

    @property
    def groups(self) -> list[tuple[str, list[NavigationItem]]]:
        """The datasets of each organization, with its name if there are several."""
        if len(self.organizations) < 2:
            return [("", list(self.datasets))]
        known = {organization.id: organization.name for organization in self.organizations}
        groups = {
            name: [dataset for dataset in self.datasets if dataset.organization == key]
            for key, name in known.items()
        }
        others = [dataset for dataset in self.datasets if dataset.organization not in known]
        return [*groups.items(), *([("Others", others)] if others else [])]


def find_last(desk: Desk | None) -> PageFrame | None:
    """The cached frame of a session; None if the session is unknown here."""
    return None if desk is None else desk.get(_NAME)


def forget(desk: Desk | None) -> None:
    """Discard the frame, so that a visitor who has logged out does not see it."""
    if desk is not None:
        desk.take(_NAME, PageFrame)


async def keep_fresh(asker: Asker, desk: Desk) -> PageFrame:
    """The cached frame if it is fresh; otherwise a newly loaded frame."""
    known: PageFrame = find_last(desk) or PageFrame()
    if known.found_at > max(desk.changed_at, runtime.monotonic() - FRESH_SECONDS):
        return known
    found = await _find_out(asker, known)
    desk.put(_NAME, found)
    return found


def mark_outdated(desk: Desk | None) -> None:
    """Note that something may have changed, so that the next page loads the frame again."""
    if desk is not None:
        desk.changed_at = runtime.monotonic()


async def _find_out(asker: Asker, known: PageFrame) -> PageFrame:
    started = runtime.monotonic()
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            organizations, datasets, schemas, invitations = await asyncio.gather(
                asker.read(_Organizations, "/api/organizations/", limit="20"),
                asker.read(_Datasets, "/api/datasets/", limit=str(MOST_DATASETS)),
                asker.read(_Schemas, "/api/schemas/", limit=str(MOST_SCHEMAS)),
                asker.read(_Invitations, "/api/invitations/", limit="1"),
            )
            took = round((runtime.monotonic() - started) * 1000)
            keyring, backed_up = await _ask_for_keyring(asker)
        return PageFrame(
            organizations=_read_places(organizations.results),
            datasets=_build_tree(datasets.results, schemas.results),
            more=datasets.next is not None or schemas.next is not None,
            invitations=invitations.count,
            api_ms=took,
            keyring=keyring,
            backed_up=backed_up,
            left=await _list_left(asker, known, organizations),
            found_at=runtime.monotonic(),
        )
    except (ErsError, TimeoutError):
        return replace(known, api_ms=None)


async def _list_left(
    asker: Asker, known: PageFrame, organizations: _Organizations
) -> tuple[LeftOrganization, ...]:
    if organizations.next is not None:
        return known.left
    now = {organization.id for organization in organizations.results}
    before = [organization for organization in known.left if organization.id not in now]
    listed = {organization.id for organization in before}
    gone = [
        organization for organization in known.organizations if organization.id not in now | listed
    ]
    return (
        *before,
        *[
            LeftOrganization(
                organization.id, organization.name, await _remover(asker, organization.id)
            )
            for organization in gone
        ],
    )


async def _remover(asker: Asker, organization: str) -> str:
    """The user who removed the visitor, according to the API."""
    path = f"/api/organizations/{organization}/audit-log/"
    try:
        page = await asker.read(_AuditLog, path, action="member.removed", limit="1")
        (entry,) = page.results
    except (ErsError, ValueError):
        return ""
    return (entry.email or "")[:MOST_CHARACTERS]


def _read_places(
    items: Sequence[resources.OrganizationResource | resources.DatasetResource],
) -> tuple[NavigationItem, ...]:
    return tuple(
        NavigationItem(item.id, item.name[:MOST_CHARACTERS])
        for item in items[:MOST_SCHEMAS]
        if _ID.fullmatch(item.id)
    )


def _build_tree(
    datasets: Sequence[resources.DatasetResource], schemas: Sequence[resources.SchemaResource]
) -> tuple[NavigationItem, ...]:
    below: dict[str, list[NavigationItem]] = {}
    for schema in schemas[:MOST_SCHEMAS]:
        if _ID.fullmatch(schema.id):
            name = schema.name[:MOST_CHARACTERS]
            place = NavigationItem(schema.id, name, filled=schema.key_id is not None)
            below.setdefault(schema.dataset, []).append(place)
    owners = {
        dataset.id: dataset.organization.removeprefix("/api/organizations/").strip("/")
        for dataset in datasets
    }
    return tuple(
        replace(
            place,
            organization=owners[place.id],
            schemas=tuple(below.get(f"/api/datasets/{place.id}/", ())),
        )
        for place in _read_places(datasets)
    )


async def _ask_for_keyring(asker: Asker) -> tuple[str, bool]:
    """The keyring's state, and whether it is backed up.

    A browser that is not registered for the keyring does not ask: that would be recorded as an
    attempt.
    """
    try:
        access = await asker.read(Devices, "/api/devices/")
        if access.keyring is None:
            return "none", True
        if access.level == "device" and not access.enrolled:
            return "closed", True
        keyring = await asker.read(KeyringInfo, "/api/keyring/")
    except NotFound:
        return "none", True
    except NotAuthenticated:
        return "closed", True
    except Closed as error:
        return ("locked" if error.reason == "keyring_locked" else "unknown"), True
    except ErsError:
        return "unknown", True
    return "open", keyring.backup_confirmed


# --- numbers of records, as last seen by pages of this session ------------------------------------

#: Seconds; other programs may store records meanwhile.
KNOWN_FOR = 600.0


@dataclass(frozen=True, slots=True)
class _RecordCount:
    records: int
    heard_at: float


def keep_count(desk: Desk, schema: str, records: int) -> None:
    """
    Args:
        schema: its identifier.
    """
    desk.put(("count", schema), _RecordCount(records, runtime.monotonic()))


def find_count(desk: Desk, schema: resources.SchemaResource) -> int | None:
    """The cached number of records; None if it is unknown, or if records may have been stored or
    deleted since.
    """
    known = desk.find(("count", schema.id), _RecordCount)
    oldest = max(desk.changed_at, runtime.monotonic() - KNOWN_FOR)
    return None if known is None or known.heard_at < oldest else known.records
