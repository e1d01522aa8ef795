"""The part of a form with a member's rights: for each dataset none, read, or read and write; on all
of its schemas, or only the ticked ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from encrypted_records.model import ids
from encrypted_records.proxy.pages.page import Visit

RIGHTS = {"": "nothing", "reader": "reads", "writer": "reads and writes"}
_ID = re.compile(ids.PATTERN)
#: Names of fields begin so; an identifier follows.
_RIGHT, _ONLY = "right-", "only-"


@dataclass(frozen=True, slots=True)
class Choice:
    """The rights chosen for one dataset; empty ``schemas`` are all schemas, including later
    ones.
    """

    dataset: str
    name: str
    role: str
    schemas: frozenset[str]
    #: of the dataset: identifier and name of each schema that can be ticked
    known: Sequence[tuple[str, str]]
    #: whether somebody has signed that this is its name
    signed: bool

    def as_share(self) -> dict[str, Any]:
        """The rights in the form that the proxy's endpoints accept."""
        share: dict[str, Any] = {"dataset": self.dataset, "role": self.role}
        return share | ({"schemas": sorted(self.schemas)} if self.schemas else {})


async def choices_of(
    visit: Visit,
    organization: str,
    people: Mapping[str, Any],
    before: Sequence[Mapping[str, Any]] = (),
) -> list[Choice]:
    """The choice for each dataset of an organization, from the form; or, if none was sent, from the
    shares ``before``.

    Signed datasets and schemas have their signed names: otherwise an API that swaps names could
    make an owner share another dataset than the one displayed. Only those that are not signed yet
    have the names that the API reports.

    Args:
        people: the people of the organization, as the proxy shows them.
    """
    names: dict[str, str] = {}
    called = {id_of(dataset["dataset"]): str(dataset["name"]) for dataset in people["datasets"]}
    known: dict[str, dict[str, str]] = {}
    for listed in await visit.every("/api/datasets/", organization=organization):
        names[str(listed["id"])] = str(listed["name"])
    for listed in await visit.every("/api/schemas/", organization=organization):
        known.setdefault(id_of(listed["dataset"]), {})[str(listed["id"])] = str(listed["name"])
    for shared in people["datasets"]:
        dataset = id_of(shared["dataset"])
        signed = {id_of(schema["schema"]): schema["name"] for schema in shared["schemas"]}
        for schemas in known.values():
            for schema in signed.keys() & schemas.keys():
                del schemas[schema]
        known.setdefault(dataset, {}).update(signed)
    return [
        Choice(
            dataset,
            name,
            *(_sent(visit, dataset) if visit.sends else _shared(before, dataset)),
            [item for item in known.get(dataset, {}).items() if _ID.fullmatch(item[0])],
            dataset in called,
        )
        for dataset, name in (names | called).items()
        # It becomes part of a path.
        if _ID.fullmatch(dataset)
    ]


def changed(choices: Sequence[Choice], before: Sequence[Mapping[str, Any]]) -> list[Choice]:
    """The choices that differ from the present shares."""
    return [
        choice
        for choice in choices
        if (choice.role, choice.schemas) != _shared(before, choice.dataset)
    ]


def _sent(visit: Visit, dataset: str) -> tuple[str, frozenset[str]]:
    role = visit.text(f"{_RIGHT}{dataset}")
    if role not in RIGHTS or not role:
        return "", frozenset()
    begins = f"{_ONLY}{dataset}-"
    return role, frozenset(
        name.removeprefix(begins) for name in visit.form if name.startswith(begins)
    )


def _shared(shares: Sequence[Mapping[str, Any]], dataset: str) -> tuple[str, frozenset[str]]:
    for share in shares:
        if id_of(share["dataset"]) == dataset:
            schemas = share["schemas"] or ()
            return str(share["role"]), frozenset(id_of(schema["schema"]) for schema in schemas)
    return "", frozenset()


def id_of(path: str) -> str:
    """The identifier at the end of a path."""
    return str(path).rstrip("/").rpartition("/")[2]
