"""Import a file step by step: look at its first rows, agree on fields, name, cost and what the
server will see, then make dataset and schema, and send the file.

Nothing is stored before the last step. Only the beginning of a file is analysed, whatever its
length; with scripts, only the beginning is sent.
"""

from __future__ import annotations

import re
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import msgspec
from starlette.responses import Response

from encrypted_records.errors import BadInput, Conflict, ErsError
from encrypted_records.model.record_formats import Format
from encrypted_records.proxy.pages.file_reading import (
    CHARSETS,
    DATE_FORMATS,
    DECIMALS,
    DELIMITER_NAMES,
    ReadingForm,
    in_words_of_the_page,
    reading_of,
    said_before,
)
from encrypted_records.proxy.pages.organizations import own_organizations
from encrypted_records.proxy.pages.page import Visit, page
from encrypted_records.proxy.pages.schema_form import (
    TYPES,
    SchemaDraft,
    draft_of,
    first_invalid,
    place_errors,
)

SHOWN_ROWS = 20
#: Bytes of a file that are looked at, as the pages' scripts have it.
HEAD_BYTES = 512 << 10
#: Bytes of a workbook or a JSON object, which are read whole, as the pages' scripts have it.
WHOLE_BYTES = 5 << 19
#: Bytes of a file's head that a page without scripts carries along.
KEPT_BYTES = 32 << 10
#: Controls for any file; the rest of the form belongs to the file that was looked at.
_OF_ANY_FILE = ("csrf", "dataset", "new_dataset", "organization", "skip")
#: Where a session keeps, by schema, how a file is read whose upload follows on another page.
READINGS = "readings"
_AS_IT_IS: Mapping[str, Any] = MappingProxyType({})
_BOM = b"\xef\xbb\xbf"


@dataclass
class ImportPlan:
    """The plan of an import as the page shows it. ``estimate`` and ``preview`` are answers of
    endpoints.
    """

    draft: SchemaDraft
    #: the file's first bytes
    head: bytes
    file: str
    size: int
    sampled: int = 0
    preview: dict[str, Any] | None = None
    estimate: dict[str, Any] | None = None
    problem: ErsError | None = None
    misplaced: list[str] = field(default_factory=list)
    first_invalid: str = ""
    reading: ReadingForm = field(default_factory=ReadingForm)

    @property
    def is_whole(self) -> bool:
        """Whether the head is all of the file."""
        return self.size <= len(self.head)

    @property
    def recipe_json(self) -> str:
        """The reading of the file as JSON, for its upload; empty if it was not detected."""
        if self.reading.answer is None:
            return ""
        return msgspec.json.encode(self.reading.of_draft(self.draft)).decode()


async def start(visit: Visit) -> Response:
    if not visit.sends:
        return await _show(visit, None)
    pasted = visit.text("sample").encode()
    head = pasted or _decoded(visit.text("head"))
    plan = ImportPlan(
        SchemaDraft(), head, visit.text("file"), len(pasted) or _number(visit.text("size"))
    )
    if visit.sent_file is not None and visit.sent_file.filename:
        plan.head, plan.size = await _head(visit.sent_file.file())
        plan.file = visit.sent_file.filename
        visit.form = {name: visit.text(name) for name in _OF_ANY_FILE if name in visit.form}
    try:
        await _work_out(visit, plan)
        if visit.text("do") == "make" and plan.problem is None:
            return await _make(visit, plan)
    except (BadInput, Conflict) as error:
        plan.problem = in_words_of_the_page(error)
        plan.misplaced = place_errors(plan.draft, error.flaws)
        plan.first_invalid = first_invalid(plan.draft)
    return await _show(visit, plan)


async def _work_out(visit: Visit, plan: ImportPlan) -> None:
    """Fill the plan: fields as proposed or as typed, the first rows, the cost.

    Raises:
        BadInput: the file, or the definition, cannot be used.
    """
    if not plan.head.strip():
        raise BadInput("there are no rows to preview", hint="choose a file, or paste some rows")
    await _read(visit, plan)
    plan.draft.records = _records(plan)
    definition = plan.draft.definition()
    body = {"schema": definition, "records": plan.draft.records, "string_bytes": {}}
    plan.estimate = await visit.ask("POST", "/api/schemas/estimate/", body)
    read = {"reading": plan.reading.of_draft(plan.draft), "whole": plan.is_whole}
    sample = b64encode(plan.head).decode()
    plan.preview = await look(visit, definition, sample, Format.CSV, read)
    plan.draft.see(plan.preview["spreads"])


async def _read(visit: Visit, plan: ImportPlan) -> None:
    """Detect how a file is read, as far as the visitor has not stated it.

    Raises:
        BadInput: the file cannot be read.
    """
    reading = plan.reading = reading_of(visit.form)
    reading.likely = _container_of(plan.head)
    typed = draft_of(visit.form) if any(name.startswith("field-") for name in visit.form) else None
    if typed is not None:
        typed.follow(visit.text("do"))
        plan.draft = typed
    try:
        reading.answer = await _detect(visit, plan, reading.said)
    except BadInput as error:
        if reading.before is None or typed is None:
            raise
        # The table stays as it was, with what was wrong about the choice.
        reading.said, wanted = said_before(visit.form), list(reading.wanted)
        reading.wanted = {}
        reading.answer = await _detect(visit, plan, reading.said)
        wanted = [number for number in wanted if number < len(typed.rows)]
        for number in wanted:
            typed.rows[number].type = visit.text(f"kind-{number}")
        plan.draft = reading.settle(typed)
        plan.problem = in_words_of_the_page(error)
        for number in wanted:
            if number < len(plan.draft.rows):
                plan.draft.rows[number].errors["type"] = plan.problem.message
    else:
        plan.draft = reading.settle(typed)
    if typed is None:
        plan.draft.name = visit.text("name") or name_of(plan.file)
    plan.sampled = reading.answer["sampled"]


async def _detect(visit: Visit, plan: ImportPlan, said: dict[str, Any]) -> dict[str, Any]:
    headers = {"content-type": "application/octet-stream", "x-file-size": str(plan.size)}
    if said:
        headers["x-reading"] = b64encode(msgspec.json.encode(said)).decode()
    answer = await visit.answer("POST", "/api/readings/detect/", plan.head, headers=headers)
    found: dict[str, Any] = answer.json()
    return found


async def look(
    visit: Visit, definition: Any, sample: str, kind: Format, read: Mapping[str, Any] = _AS_IT_IS
) -> dict[str, Any]:
    """The first rows, and the cells of them that do not fit, by row and field.

    Args:
        read: the recipe that the sample is read by, and whether it is whole.

    Raises:
        BadInput: nothing can be read, or the columns are others.
    """
    body = {"schema": definition, "sample": sample, "format": kind.value, "rows": SHOWN_ROWS}
    body |= read
    preview: dict[str, Any] = await visit.ask("POST", "/api/schemas/preview/", body)
    wrong: dict[int, dict[str | None, str]] = {}
    for flaw in preview["errors"]:
        wrong.setdefault(flaw["row"], {})[flaw["field"]] = flaw["detail"]
    spreads = {field["name"]: field for field in preview["fields"]}
    return preview | {"wrong": wrong, "spreads": spreads}


async def _make(visit: Visit, plan: ImportPlan) -> Response:
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
    # For the files of later months; the rows of this one are on their way.
    recipe = plan.reading.of_draft(plan.draft)
    await visit.ask("PUT", f"/api/schemas/{schema['id']}/reading/", recipe)
    if "hx-request" in visit.request.headers:
        return visit.render(
            "import.html",
            plan=None,
            made=schema,
            skip=visit.text("skip"),
            reading=plan.recipe_json,
            kept="",
            pasted="",
        )
    visit.desk.put((READINGS, schema["id"]), plan.recipe_json)
    return visit.go(f"/schemas/{schema['id']}/upload/")


async def _show(visit: Visit, plan: ImportPlan | None) -> Response:
    datasets = await visit.every("/api/datasets/")
    organizations = await own_organizations(visit)
    newest = max(datasets, key=lambda dataset: str(dataset["id"]), default=None)
    chosen = newest["url"] if newest else ""
    shown: dict[str, Any] = {
        "datasets": datasets,
        "organizations": organizations,
        "dataset": visit.text("dataset", chosen) if visit.sends else chosen,
        "new_dataset": visit.text("new_dataset") or (plan.draft.name if plan else ""),
        "made": None,
        "plan": plan,
        "types": TYPES,
        "charsets": CHARSETS,
        "delimiters": DELIMITER_NAMES,
        "date_formats": {form: form for form in DATE_FORMATS},
        "decimals": DECIMALS,
        # A page with scripts keeps the file's head where it is.
        "kept": "" if plan is None or "hx-request" in visit.request.headers else _kept(visit, plan),
        "pasted": visit.text("sample") if plan else "",
    }
    if plan is not None and plan.problem is not None:
        return visit.problem(plan.problem, "import.html", **shown)
    return visit.render("import.html", **shown)


def name_of(file: str) -> str:
    """A schema's name for a file's: without the ending, and with spaces for what stands for them.

    It is a proposal: the server sees a name only when it is stored.
    """
    stem = re.sub(
        r"\.(csv|tsv|tab|txt|json|ndjson|jsonl|xlsx|xlsm|ods)$", "", file, flags=re.IGNORECASE
    )
    name = re.sub(r"[\s_]+", " ", stem).strip()[:100]
    return name[:1].upper() + name[1:]


def _records(plan: ImportPlan) -> int:
    """How many records the file has: as many as its head, or in proportion to it."""
    if plan.is_whole:
        return max(1, plan.sampled)
    return max(1, round(plan.size / len(plan.head) * plan.sampled))


def _number(typed: str) -> int:
    return int(typed) if typed.isascii() and typed.isdecimal() and len(typed) <= 15 else 0


async def _head(pieces: AsyncIterator[bytes]) -> tuple[bytes, int]:
    """The first bytes of a file that comes in a form, and its size. The rest is not kept."""
    head = bytearray()
    size = 0
    async for piece in pieces:
        size += len(piece)
        most = WHOLE_BYTES if is_read_whole(head or piece) else HEAD_BYTES
        head += piece[: max(0, most - len(head))]
    return bytes(head), size


def _kept(visit: Visit, plan: ImportPlan) -> str:
    """For the hidden member of a page without scripts, which has no other place for it."""
    kept = plan.head if is_read_whole(plan.head) else plan.head[:KEPT_BYTES]
    return "" if visit.text("sample") else urlsafe_b64encode(kept).decode()


def is_read_whole(start: bytes | bytearray) -> bool:
    """Whether a file may have no head that tells how it is read: a workbook, or a JSON object,
    which has the records in one of its members unless it is one of many lines."""
    return start.startswith(b"PK") or start.removeprefix(_BOM).lstrip()[:1] == b"{"


def _container_of(start: bytes) -> str:
    if start.startswith(b"PK"):
        return "workbook"
    return "json" if start.removeprefix(_BOM).lstrip()[:1] in (b"{", b"[") else "csv"


def _decoded(text: str) -> bytes:
    """Decode a hidden form value that this page or its script wrote; empty if it was tampered
    with.
    """
    try:
        return urlsafe_b64decode(text.encode())
    except (ValueError, UnicodeError):
        return b""


routes = [page("/import/", start, methods=("GET", "POST"), files=True)]
