"""One way from a file to records: look at its first rows, agree on fields, name, cost and what the
server will see, then make dataset and schema, and send the file.

Nothing is stored before the last step. Only the head of a file is looked at, however long it is;
with scripts, only the head is sent.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import Response

from encrypted_records.errors import BadInput, Conflict, ErsError
from encrypted_records.model.media_types import Format
from encrypted_records.proxy.pages.columns import Heading, header_line, heading_of, with_header
from encrypted_records.proxy.pages.editor_errors import first_invalid, place_errors
from encrypted_records.proxy.pages.page import Visit, page
from encrypted_records.proxy.pages.schema_form import TYPES, Draft, draft_of

SHOWN_ROWS = 20
#: Bytes of a file that are looked at, as the pages' scripts have it.
HEAD_BYTES = 512 << 10
#: Rows of a sample that a proposal reads.
SAMPLED_ROWS = 10_000
#: Of a sample that a page without scripts carries along.
KEPT_BYTES = 32 << 10


@dataclass
class Plan:
    """What the page shows of an import. ``estimate`` and ``preview`` are endpoints' answers."""

    draft: Draft
    sample: str
    file: str
    size: int
    sampled: int = 0
    preview: dict[str, Any] | None = None
    estimate: dict[str, Any] | None = None
    problem: ErsError | None = None
    misplaced: list[str] = field(default_factory=list)
    first_invalid: str = ""
    #: of CSV
    heading: Heading | None = None

    @property
    def header(self) -> str:
        """The header that the file is sent with; empty where it is sent with its own."""
        if self.heading is None:
            return ""
        kept = {row.name for row in self.draft.rows if not row.left_out}
        fields = [name if name in kept else "" for name in self.heading.names]
        return header_line(fields) if "" in fields else ""

    @property
    def unnamed(self) -> int:
        """How many columns have no name, and so are left out."""
        return 0 if self.heading is None else self.heading.names.count("")

    @property
    def is_whole(self) -> bool:
        """Whether the sample is all of the file."""
        return self.size <= len(self.sample.encode())


async def start(visit: Visit) -> Response:
    if not visit.sends:
        return await _show(visit, None)
    plan = Plan(Draft(), visit.text("sample"), visit.text("file"), _number(visit.text("size")))
    if visit.sent_file is not None and visit.sent_file.filename:
        plan.sample, plan.size = await _head(visit.sent_file.file())
        plan.file = visit.sent_file.filename
    try:
        await _work_out(visit, plan)
        if visit.text("do") == "make" and plan.problem is None:
            return await _make(visit, plan)
    except (BadInput, Conflict) as error:
        plan.problem = error
        plan.misplaced = place_errors(plan.draft, error.flaws)
        plan.first_invalid = first_invalid(plan.draft)
    return await _show(visit, plan)


async def _work_out(visit: Visit, plan: Plan) -> None:
    """Fill the plan: fields as proposed or as typed, the first rows, the cost.

    Raises:
        BadInput: the sample, or the definition, cannot be used.
    """
    if not plan.sample.strip():
        raise BadInput("there are no rows to look at", hint="choose a file, or paste some rows")
    kind = Format.of_file(plan.file, plan.sample.lstrip()[:1].encode())
    sample = plan.sample
    if kind is Format.CSV:
        plan.heading = heading_of(sample)
        if plan.heading is not None and not all(plan.heading.names):
            # A column without a name can be no field.
            sample = with_header(sample, plan.heading, plan.heading.names)
    answer = await visit.answer(
        "POST",
        "/api/schemas/infer/",
        sample.encode(),
        headers={"content-type": kind.media_type},
    )
    proposal = answer.json()
    plan.sampled = proposal["sampled"]
    if any(name.startswith("field-") for name in visit.form):
        plan.draft = draft_of(visit.form)
        plan.draft.follow(visit.text("do"))
    else:
        plan.draft.take(proposal["schema"])
        plan.draft.name = visit.text("name") or name_of(plan.file)
    plan.draft.annotate(proposal["fields"])
    plan.draft.records = _records(plan)
    definition = plan.draft.definition()
    body = {
        "schema": definition,
        "records": plan.draft.records,
        "string_bytes": {
            one["name"]: int(one["bytes"])
            for one in proposal["fields"]
            if one["bytes"] is not None and one["name"] in definition["properties"]
        },
    }
    plan.estimate = await visit.ask("POST", "/api/schemas/estimate/", body)
    if plan.header:
        assert plan.heading is not None
        sample = plan.header + plan.sample[plan.heading.length :]
    plan.preview = await look(visit, definition, sample, kind)


async def look(visit: Visit, definition: Any, sample: str, kind: Format) -> dict[str, Any]:
    """The first rows, and the cells of them that do not fit, by row and field.

    Raises:
        BadInput: nothing can be read, or the columns are others.
    """
    body = {"schema": definition, "sample": sample, "format": kind.value, "rows": SHOWN_ROWS}
    preview: dict[str, Any] = await visit.ask("POST", "/api/schemas/preview/", body)
    wrong: dict[int, dict[str | None, str]] = {}
    for flaw in preview["errors"]:
        wrong.setdefault(flaw["row"], {})[flaw["field"]] = flaw["detail"]
    spreads = {one["name"]: one for one in preview["fields"]}
    return preview | {"wrong": wrong, "spreads": spreads}


async def _make(visit: Visit, plan: Plan) -> Response:
    """Make dataset and schema; the file follows, by the page's script or by the next form.

    Raises:
        BadInput, Conflict: a name that cannot be used.
    """
    dataset = visit.text("dataset")
    if not dataset:
        organization = visit.text("organization")
        sent = {"name": visit.text("new_dataset").strip(), "organization": organization}
        dataset = (await visit.ask("POST", "/api/datasets/", sent))["url"]
        visit.form = {**visit.form, "dataset": dataset}
    schema = await visit.ask(
        "POST",
        "/api/schemas/",
        {
            "name": plan.draft.name.strip(),
            "dataset": dataset,
            "schema": plan.draft.definition(),
        },
    )
    if "hx-request" in visit.request.headers:
        return visit.render(
            "import.html",
            plan=None,
            made=schema,
            skip=visit.text("skip"),
            header=plan.header,
            kept="",
        )
    return visit.go(f"/schemas/{schema['id']}/upload/")


async def _show(visit: Visit, plan: Plan | None) -> Response:
    datasets = await visit.every("/api/datasets/")
    organizations = await visit.every("/api/organizations/")
    newest = max(datasets, key=lambda one: str(one["id"]), default=None)
    chosen = newest["url"] if newest else ""
    shown: dict[str, Any] = {
        "datasets": datasets,
        "organizations": organizations,
        "dataset": visit.text("dataset", chosen) if visit.sends else chosen,
        "new_dataset": visit.text("new_dataset") or (plan.draft.name if plan else ""),
        "made": None,
        "plan": plan,
        "types": TYPES,
        # A page with scripts keeps the sample where it is.
        "kept": "" if plan is None or "hx-request" in visit.request.headers else _kept(plan),
    }
    if plan is not None and plan.problem is not None:
        return visit.problem(plan.problem, "import.html", **shown)
    return visit.render("import.html", **shown)


def name_of(file: str) -> str:
    """A schema's name for a file's: without the ending, and with spaces for what stands for them.

    It is a proposal: the server sees a name only when it is stored.
    """
    stem = re.sub(r"\.(csv|json|ndjson|jsonl)$", "", file, flags=re.IGNORECASE)
    name = re.sub(r"[\s_]+", " ", stem).strip()[:100]
    return name[:1].upper() + name[1:]


def _records(plan: Plan) -> int:
    """How many records the file has: as many as the sample, or in proportion to it."""
    rows = plan.sampled if plan.sampled < SAMPLED_ROWS else _count_rows(plan.sample)
    if plan.is_whole:
        return max(1, rows)
    return max(1, round(plan.size / len(plan.sample.encode()) * rows))


def _count_rows(sample: str) -> int:
    """How many rows a sample has of which only the first were read."""
    begin = sample.lstrip()[:1]
    if begin == "[":
        return max(SAMPLED_ROWS, sample.count('"data"'))
    if begin == "{":
        return sample.count("\n")
    # A line break in quotes ends no row.
    return sum(part.count("\n") for part in sample.split('"')[::2]) - 1


def _number(typed: str) -> int:
    return int(typed) if typed.isascii() and typed.isdecimal() and len(typed) <= 15 else 0


async def _head(pieces: AsyncIterator[bytes]) -> tuple[str, int]:
    """The first rows of a file that comes in a form, and its size. The rest is not kept."""
    head = bytearray()
    size = 0
    async for piece in pieces:
        size += len(piece)
        head += piece[: max(0, HEAD_BYTES - len(head))]
    text = head.decode("utf-8-sig", errors="replace")
    return text if size <= HEAD_BYTES else _whole_rows(text), size


def _whole_rows(text: str) -> str:
    """Up to the last line break that is in no quotes."""
    end = text.rfind("\n")
    while end > 0 and text.count('"', 0, end) % 2:
        end = text.rfind("\n", 0, end)
    return text[: end + 1]


def _kept(plan: Plan) -> str:
    if len(plan.sample.encode()) <= KEPT_BYTES:
        return plan.sample
    return _whole_rows(plan.sample.encode()[:KEPT_BYTES].decode(errors="ignore"))


routes = [page("/import/", start, methods=("GET", "POST"), files=True)]
