"""The rights of all members of an organization as a table that owners change: people and services
in rows, datasets in columns.

A cell contains the right that it has shown. If another owner has changed one of the changed cells
since, nothing is changed; cells that the visitor did not change keep their present right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from encrypted_records.errors import BadInput, Conflict, ErsError
from encrypted_records.proxy.pages.page import Visit, page, proof_of
from encrypted_records.proxy.pages.shares import RIGHTS, id_of


@dataclass(frozen=True, slots=True)
class RightCell:
    """The right of a member in a dataset: one of :data:`RIGHTS`.

    Attributes:
        now: the right by the signed list.
        shown: the right that the visitor's form was made of.
        typed: the right that the form says.
        schemas: names of the only schemas that the right is for; such a cell is changed on the
            member's own page.
    """

    member: str
    dataset: str
    now: str
    shown: str
    typed: str
    schemas: Sequence[str] = ()

    @property
    def name(self) -> str:
        return f"{self.member}-{self.dataset}"

    @property
    def chosen(self) -> str:
        """The right that the visitor wants, the present one where they left it alone."""
        return self.now if self.typed == self.shown else self.typed

    @property
    def is_changed(self) -> bool:
        return self.typed != self.shown and (self.typed != self.now or bool(self.schemas))

    @property
    def is_overtaken(self) -> bool:
        """Whether the right is no longer the shown or typed one, or is only for some schemas."""
        return bool(self.schemas) or self.now not in (self.shown, self.typed)


@dataclass(frozen=True, slots=True)
class MatrixRow:
    member: dict[str, Any]
    cells: Sequence[RightCell]


def lines_of(visit: Visit, people: dict[str, Any]) -> list[MatrixRow]:
    """A line for each member who is not an owner, who would have everything."""
    datasets = [id_of(dataset["dataset"]) for dataset in people["datasets"]]
    members = [person for person in people["people"] if person["role"] != "owner"]
    return [
        MatrixRow(member, [_cell_of(visit, member, dataset) for dataset in datasets])
        for member in members
    ]


def _cell_of(visit: Visit, member: dict[str, Any], dataset: str) -> RightCell:
    shares = [share for share in member["shares"] if id_of(share["dataset"]) == dataset]
    now = str(shares[0]["role"]) if shares else ""
    schemas = [str(schema["name"]) for schema in shares[0]["schemas"] or ()] if shares else []
    name = f"{member['id']}-{dataset}"
    shown = visit.text(f"was-{name}", now)
    typed = visit.text(f"right-{name}", shown)
    return RightCell(member["id"], dataset, now, shown, typed, schemas)


def _changed(lines: Sequence[MatrixRow]) -> Iterator[RightCell]:
    """
    Raises:
        BadInput: an unknown right.
        Conflict: one of the changed cells has another right than was shown.
    """
    for cell in (cell for line in lines for cell in line.cells if cell.is_changed):
        if cell.typed not in RIGHTS:
            raise BadInput("there is no such right", hint="choose one from the menu")
        if cell.is_overtaken:
            raise Conflict(
                "somebody has changed these rights since you opened the table, so nothing"
                " was changed",
                hint="the table shows the current rights, and yours where they differ: check"
                " them, then apply yours if you still want them",
            )
        yield cell


async def show(visit: Visit) -> Response:
    """The table; of a form, the changes, one after the other: what was done before one fails is
    done, and shown."""
    url = f"/api/organizations/{visit.id}/"
    problem: ErsError | None = None
    if visit.sends:
        try:
            lines = lines_of(visit, await visit.ask("GET", f"{url}people/"))
            for cell in list(_changed(lines)):
                await _change(visit, cell)
        except ErsError as error:
            problem = error
        else:
            return visit.go(f"/organizations/{visit.id}/")
    people = await visit.ask("GET", f"{url}people/")
    shown = {
        "organization": await visit.ask("GET", url),
        "access": await visit.ask("GET", "/api/devices/"),
        "datasets": people["datasets"],
        "lines": lines_of(visit, people),
        "rights": RIGHTS,
    }
    if problem is not None:
        return visit.problem(problem, "people_matrix.html", **shown)
    return visit.render("people_matrix.html", **shown)


async def _change(visit: Visit, cell: RightCell) -> None:
    path = f"/api/datasets/{cell.dataset}/people/{cell.member}/"
    if cell.typed:
        await visit.ask("PUT", path, {"role": cell.typed, "proof": proof_of(visit)})
    else:
        await visit.ask("DELETE", path)


routes = [page("/organizations/{id}/rights/", show, methods=("GET", "POST"))]
