"""Datasets, schemas and pages by a few letters of their names: on the page of all datasets, and in
the box of its form that a script opens over any page. Typed text travels in the form's body."""

from __future__ import annotations

from dataclasses import dataclass

from encrypted_records.proxy.pages import frame

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
