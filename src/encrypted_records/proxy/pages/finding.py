"""Find: datasets, schemas and pages by a few letters of their names.

It is a page with a form, and a box over any page that a script opens with Ctrl-K: the same form,
the same answer. What is typed travels in the form's body, as all that people type here.
"""

from __future__ import annotations

from dataclasses import dataclass

from starlette.responses import Response

from encrypted_records.proxy.pages import frame
from encrypted_records.proxy.pages.page import Visit, page

MOST = 12
_PAGES = (
    ("/", "Overview"),
    ("/datasets/", "Datasets"),
    ("/datasets/new/", "New dataset"),
    ("/jobs/", "Jobs"),
    ("/keyring/", "Keyring"),
    ("/organizations/", "People, invitations and services of an organization"),
    ("/audit-log/", "Audit log"),
    ("/account/", "Account and password"),
    ("/account/tokens/", "API tokens"),
    ("/docs/", "Reference of the HTTP API"),
)


@dataclass(frozen=True, slots=True)
class Target:
    """One thing that can be gone to; ``path`` is below the secret one."""

    path: str
    label: str
    kind: str


async def find(visit: Visit) -> Response:
    typed = visit.text("wanted")[:200]
    around = await frame.keep_fresh(visit, visit.desk)
    targets = find_matching(_targets(around), typed)
    return visit.render("find.html", wanted=typed, targets=targets[:MOST], more=len(targets) - MOST)


def _targets(around: frame.Frame) -> list[Target]:
    targets: list[Target] = []
    for dataset in around.datasets:
        for schema in dataset.schemas:
            base = f"/schemas/{schema.id}/"
            if schema.filled:
                targets.append(Target(f"{base}search/", schema.name, "records"))
            targets.append(Target(base, schema.name, "schema"))
            targets.append(Target(f"{base}upload/", f"Upload to {schema.name}", "action"))
            targets.append(Target(f"{base}add/", f"Add a record to {schema.name}", "action"))
        targets.append(Target(f"/datasets/{dataset.id}/", dataset.name, "dataset"))
    targets += [Target(path, label, "page") for path, label in _PAGES]
    return targets


def find_matching(targets: list[Target], typed: str) -> list[Target]:
    """Those whose labels have every word that was typed; labels that begin with it come first."""
    words = typed.casefold().split()
    found = [one for one in targets if all(word in one.label.casefold() for word in words)]
    begins = typed.strip().casefold()
    return sorted(found, key=lambda one: not one.label.casefold().startswith(begins))


routes = [page("/find/", find, methods=("GET", "POST"), changes=False)]
