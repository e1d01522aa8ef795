"""Questions about a schema: of a window, between two requests; saved by name; and as links.

- A form carries its whole question. The address carries only a random name, under which the
  question is kept on the session's desk for a reload; no address contains the question.
- A question on the desk never changes: a changed question gets a new name, so that two windows
  keep their questions, also if one was opened from the other.
- A schema that was shown is cached, so that a page keeps its filters while the API is down. It is
  requested again after some seconds, and after each form that may have changed it: this saves a
  search one request to the API.
- The name of a button is an action and its target, such as ``sort:age``. Input that was typed
  before the button was pressed is in the same form, and is used.
- The desk also counts the searches of the last hour by minute, for the overview, but does not keep
  their content.

Saved questions are encrypted at this proxy. Each has a URL that reveals nothing of its content, so
that it can be bookmarked.

A link is for others who can read the schema and are logged in at this proxy. The secret that opens
its question is in the fragment of the link, after ``#``, which browsers do not send. The page of
the link copies it into its form (web/src/links.js); without scripts it is typed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from re import fullmatch
from typing import Any

import msgspec
from starlette.responses import Response

from encrypted_records import errors, runtime
from encrypted_records.client.proxy.connection import ShownSchema
from encrypted_records.client.sdk.condition_language import NotUnderstood, write, write_field
from encrypted_records.model import ids
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.pages.formatting import plain
from encrypted_records.proxy.pages.page import Visit, page
from encrypted_records.proxy.pages.search_form import (
    Question,
    condition_of,
    equals_any,
    is_dated,
    is_listed,
    number,
    read_line,
    read_value,
    types_of,
)
from encrypted_records.proxy.saved_questions import LINK_DAYS, SavedQuestion, SavedQuestions
from encrypted_records.proxy.services import services_of

# --- changes by buttons ---------------------------------------------------------------------------

#: Comparisons of bars, and the number of values of each.
_PICKS = {"eq": 1, "between": 2, "missing": 0}


def change_question(
    question: Question, do: str, form: Mapping[str, str], definition: Mapping[str, Any]
) -> Question:
    """The question after a button was pressed.

    Args:
        question: the question in the form.
        do: the button's action and target.
        definition: the schema's definition.

    Raises:
        NotUnderstood: the typed line is not a question; nothing is changed.
        BadInput: no button of the page has this name, or a number cannot be read.
    """
    types = types_of(definition)
    for part in read_line(form.get("ask", ""), definition):
        question.add(part)
    _take_ranges(question, form, types)
    action, _, target = do.partition(":")
    match action:
        case "next" if form.get("cursor"):
            if form.get("asked") == question.mark():
                question.pages.append(form["cursor"])
        case "previous":
            question.go_back()
        case "row" | "search":  # Enter in the field of the number presses the first button
            _go_to_row(question, form.get("row", ""))
        case "sort" | "up" | "down" | "hide" | "filter":
            _change_column(question, action, _known(target, types), types)
        case "show":
            question.hidden = []
        case "dense":
            question.dense = not question.dense
        case "sealed":
            question.sealed = not question.sealed
        case "remove" | "edit" | "loosen" | "value":
            _change_part(question, action, target, types)
        case "pick":
            _pick(question, target, types)
        case "clear":
            return Question(hidden=question.hidden, dense=question.dense, sealed=question.sealed)
    return question


def _go_to_row(question: Question, typed: str) -> None:
    """Go to the record with a typed number; blanks and commas are ignored."""
    number = re.sub(r"[\s,.']", "", typed)
    if number.isascii() and number.isdecimal():
        question.begin()
        question.wanted = max(1, int(number[:9]))
        question.go_to(str(question.wanted - 1))


def _change_column(question: Question, action: str, name: str, types: Mapping[str, str]) -> None:
    match action:
        case "sort":
            question.sort(name)
        case "hide":
            if name not in question.hidden and len(question.hidden) + 1 < len(types):
                question.hidden.append(name)
        case "filter":
            question.typed = f"{write_field(name)} "
        case _:
            question.order_by(name, descending=action == "down")


def _known(name: str, types: Mapping[str, str]) -> str:
    if name not in types:
        raise _unknown()
    return name


def _take_ranges(question: Question, form: Mapping[str, str], types: Mapping[str, str]) -> None:
    """Replace the previous ranges by the bounds that were typed below pictures."""
    for position, name in enumerate(types):
        low, high = (form.get(f"{end}-{position}", "").strip() for end in ("from", "to"))
        if (low or high) and (not is_listed(types[name]) or is_dated(types[name])):
            place, (least, most) = question.own_stretch(name, types) or (None, (None, None))
            low, high = low or plain(least), high or plain(most)
            op, typed = ("between", [low, high]) if low and high else ("ge", [low])
            if not low:
                op, typed = "le", [high]
            flaws: list[errors.Flaw] = []
            values = [
                text if is_dated(types[name]) else number(text, name, flaws) for text in typed
            ]
            if flaws:
                raise errors.InvalidQuery("a range cannot be read", flaws=tuple(flaws), hint="")
            value = values if op == "between" else values[0]
            part = write({"field": name, "op": op, "value": value})
            question.add(part) if place is None else question.replace(place, [part])


def _change_part(question: Question, action: str, target: str, types: Mapping[str, str]) -> None:
    place, _, value = target.partition(":")
    if place not in map(str, range(len(question.parts))):
        raise _unknown()
    at = int(place)
    part = question.parts[at]
    if action == "edit":
        question.typed = part
    if action in ("edit", "remove"):
        question.replace(at, [])
        return
    where = condition_of(part, types)
    if "field" not in where or not isinstance(where.get("value"), str | list):
        raise _unknown()
    name = where["field"]
    if action == "value":
        question.replace(at, [write(equals_any(name, [value]))])
    else:
        typed = where["value"] if isinstance(where["value"], str) else where["value"][0]
        looser = {"field": name, "op": "contains", "value": typed, "fold": True}
        question.replace(at, [write(looser)])


def _pick(question: Question, target: str, types: Mapping[str, str]) -> None:
    """Apply a click on a bar of a picture."""
    name, op, texts = read_pick(target, types)
    if op == "missing":
        question.add(write({"field": name, "op": "is_null", "value": True}))
        return
    values = [read_value(types[name], text, name, []) for text in texts]
    if op == "eq":
        question.toggle(name, values[0], types)
    else:
        question.add(write({"field": name, "op": op, "value": values}))


def read_pick(text: str, types: Mapping[str, str]) -> tuple[str, str, list[str]]:
    """The field, comparison and values of a picture's bar.

    Raises:
        BadInput: it is not a bar of the page.
    """
    try:
        name, op, values = msgspec.json.decode(text, type=tuple[str, str, list[str]])
    except msgspec.DecodeError:
        raise _unknown() from None
    if name not in types or len(values) != _PICKS.get(op, -1):
        raise _unknown()
    return name, op, values


def write_pick(name: str, op: str, values: list[str]) -> str:
    """The button target that :func:`read_pick` parses."""
    return msgspec.json.encode((name, op, values)).decode()


def _unknown() -> errors.BadInput:
    return errors.BadInput("the page has no such button", hint="load the page again")


# --- questions on the desk ------------------------------------------------------------------------

_NAME_BYTES = 12
#: Seconds for which a shown schema is used without another request.
FRESH_SECONDS = 10.0
#: Maximum characters of a question that is kept for a reload.
MOST_KEPT = 64 << 10
#: Members of a form that select the page of the answer.
_OF_A_PAGE = ("pages", "asked", "start")


@dataclass(frozen=True, slots=True)
class _ReadSchema:
    content: ShownSchema
    asked_at: float


@dataclass(slots=True)
class SchemaQuestion:
    """A schema that is being searched: ``types`` of its fields by name, in order.

    ``name`` is the question's name; ``down``: the API cannot be reached at the moment.
    """

    schema: ShownSchema
    types: dict[str, str]
    question: Question
    name: str = ""
    down: errors.ErsError | None = None
    #: of a refused export, to be shown once
    refused: errors.ErsError | None = field(default=None, repr=False)

    #: whether the address names a question that is not on the desk
    unknown: bool = False
    #: the window's question before the form was sent
    before: Question = field(default_factory=Question, repr=False)
    #: whether the schema is a copy that was shown some seconds ago
    remembered: bool = False
    #: whether an answer did not match the schema
    in_doubt: bool = False
    #: request for the current schema, if it was not awaited
    asking: asyncio.Task[ShownSchema | errors.ErsError] | None = field(default=None, repr=False)

    @property
    def query(self) -> str:
        """The query string of a page that shows this question."""
        return f"?q={self.name}" if self.name else ""

    async def is_outdated(self, visit: Visit) -> bool:
        """Whether the schema differs from the cached copy, if that was requested or is in doubt.

        Raises:
            ErsError: it is gone, or the visitor may no longer read it.
        """
        if self.asking is None and not (self.remembered and self.in_doubt):
            return False
        schema = await (self.asking or _ask_for_schema(visit))
        if isinstance(schema, errors.Unavailable):
            return False
        if isinstance(schema, errors.ErsError):
            raise schema
        return schema != self.schema


async def find_question(visit: Visit, *, early: bool = False, asks: bool = True) -> SchemaQuestion:
    """The schema in the page's path, and the question of the form or of the address.

    Args:
        early: use the schema as last shown, and request it concurrently
            (:meth:`SchemaQuestion.is_outdated`).
        asks: whether an early schema is requested at all.

    Raises:
        ErsError: there is no such schema, or the API is down and it was not shown before.
    """
    shown = visit.desk.find(("schema", visit.id), _ReadSchema)
    asking: asyncio.Task[ShownSchema | errors.ErsError] | None = None
    down: errors.ErsError | None = None
    remembered = early and shown is not None
    if early and shown is not None:
        if asks and not _is_fresh(visit, shown):
            asking = asyncio.create_task(_ask_for_schema(visit))  # noqa: TID251 # ends with its request
        schema = shown.content
    else:
        answer = await _ask_for_schema(visit)
        if isinstance(answer, errors.ErsError):
            if shown is None or not isinstance(answer, errors.Unavailable):
                raise answer
            schema, down = shown.content, answer
        else:
            schema = answer
    types = types_of(schema.definition)
    if visit.has_form:
        question = Question.read(visit.form, types)
        name = visit.text("q")
        return SchemaQuestion(
            schema,
            types,
            question,
            name,
            down,
            before=find_shown(visit, visit.id, name),
            remembered=remembered,
            asking=asking,
        )
    name = visit.request.query_params.get("q", "")
    kept = visit.desk.find(("search", visit.id, name), Question)
    unknown = bool(name) and kept is None
    name = name if kept else ""
    question = find_shown(visit, visit.id, name)
    refused = visit.desk.take(("refused", visit.id, name), errors.ErsError)
    question = question.copy()
    return SchemaQuestion(
        schema,
        types,
        question,
        name,
        down,
        refused,
        unknown,
        remembered=remembered,
        asking=asking,
    )


def find_shown(visit: Visit, schema: str, name: str) -> Question:
    """The question of this name on a schema's page of records; if it is not on the desk, a new
    question with the last window's display settings.
    """
    kept = visit.desk.find(("search", schema, name), Question)
    return kept or visit.desk.find(("view", schema), Question) or Question()


def carry(question: Question) -> list[tuple[str, str]]:
    """Form fields, as names and values, for a question that is kept, at its first page."""
    return [pair for pair in question.carried() if pair[0] not in _OF_A_PAGE]


async def _ask_for_schema(visit: Visit) -> ShownSchema | errors.ErsError:
    try:
        schema = await visit.read(ShownSchema)
    except errors.ErsError as error:
        return error
    visit.desk.put(("schema", visit.id), _ReadSchema(schema, runtime.monotonic()))
    return schema


def _is_fresh(visit: Visit, shown: _ReadSchema) -> bool:
    changed_at = visit.desk.changed_at
    return shown.asked_at > max(changed_at, runtime.monotonic() - FRESH_SECONDS)


def keep_question(visit: Visit, on: SchemaQuestion) -> bool:
    """Put the question on the desk and name it, unless it is very long: then only its forms carry
    it.
    """
    visit.question = on.name
    if visit.desk.find(("search", visit.id, on.name), Question) == on.question:
        return True
    visit.question = on.name = ""
    question = on.question.copy()
    if sum(len(name) + len(text) for name, text in question.carried()) > MOST_KEPT:
        return False
    visit.question = on.name = runtime.random_text(_NAME_BYTES)
    visit.desk.put(("search", visit.id, on.name), question)
    # Display settings are kept for windows that are opened later; the question is not.
    view = Question(hidden=question.hidden, dense=question.dense, sealed=question.sealed)
    visit.desk.put(("view", visit.id), view)
    return True


#: Target of a problem in the answer to a script's request: the previous results stay.
_PROBLEM_ONLY = {"HX-Retarget": "#filters", "HX-Reselect": "#filters", "HX-Reswap": "outerHTML"}


async def answer_question(
    visit: Visit, on: SchemaQuestion, page: str, show: Callable[..., Awaitable[Response]]
) -> Response:
    """A page of a question. Its form changes the question and redirects to its address; a script
    gets the answer at once.

    Args:
        page: the page's name in its address.
        show: shows the question, and the error of a line that is not one.
    """
    if on.unknown:
        return visit.render("unknown_question.html", 404, schema=on.schema, page=page)
    if not visit.sends:
        return await show(visit, on)
    try:
        on.question = change_question(
            on.question, visit.text("do"), visit.form, on.schema.definition
        )
    except NotUnderstood as error:
        # The line may be about a field that is newer than the cached schema.
        on.in_doubt = True
        on.question.typed = visit.text("ask").strip()
        return await show(visit, on, error)
    kept = keep_question(visit, on)
    if kept and "hx-request" not in visit.request.headers:
        return visit.go(f"/schemas/{visit.id}/{page}/{on.query}")
    response = await show(visit, on)
    stays = on.question.applied() == on.before.applied()
    # A new history entry, or, if the answer stays the same, the same entry.
    address = f"{visit.at}/schemas/{visit.id}/{page}/{on.query}"
    response.headers["HX-Replace-Url" if stays else "HX-Push-Url"] = address
    return response


def show_answer(
    visit: Visit, template: str, problem: errors.ErsError | None, **shown: Any
) -> Response:
    if problem is None:
        return visit.render(template, **shown)
    response = visit.problem(problem, template, **shown)
    response.headers.update(_PROBLEM_ONLY)
    return response


async def measure(
    visit: Visit, on: SchemaQuestion, where: Any, *measures: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The results of measures of the records that match a condition; by default, their number.

    Raises:
        ErsError: as /api/records/aggregate/ does.
    """
    body = {"schema": on.schema.url, "where": where, "measures": measures or [{"op": "count"}]}
    answer = await visit.ask("POST", "/api/records/aggregate/", body)
    results: list[dict[str, Any]] = answer["measures"]
    return results


# --- numbers of searches --------------------------------------------------------------------------

#: Minutes that are remembered; below, minutes per bar of the picture.
KEPT_MINUTES = 60
BAR_MINUTES = 2


@dataclass(slots=True)
class SearchCounts:
    """``clock`` is in seconds and never goes back."""

    clock: Callable[[], float] = runtime.monotonic
    _by_minute: dict[int, int] = field(default_factory=dict, repr=False)

    def add(self) -> None:
        """Count a search that is made now."""
        now = self._now()
        self._by_minute[now] = self._by_minute.get(now, 0) + 1
        for minute in [minute for minute in self._by_minute if minute <= now - KEPT_MINUTES]:
            del self._by_minute[minute]

    def bars(self) -> list[int]:
        """Searches per two minutes of the last hour, the latest at the end."""
        now, bars = self._now(), [0] * (KEPT_MINUTES // BAR_MINUTES)
        for minute, count in self._by_minute.items():
            ago = now - minute
            if ago < KEPT_MINUTES:
                bars[-1 - ago // BAR_MINUTES] += count
        return bars

    def __len__(self) -> int:
        """The number of minutes that are remembered."""
        return len(self._by_minute)

    def _now(self) -> int:
        return int(self.clock() // 60)


# --- saved questions ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ListedQuestion:
    """A saved question as the page shows it; ``says`` are its parts."""

    id: str
    name: str
    says: list[str]
    order: str


async def show_saved(visit: Visit) -> Response:
    """All saved questions of a schema; the forms save, rename and delete one."""
    on = await find_question(visit)
    if not visit.sends:
        return await _show_saved(visit, on)
    action, _, target = visit.text("do").partition(":")
    holder = await _holder(visit)
    questions, schema = _saved_questions(visit), ids.from_text(visit.id)
    match action:
        case "save":
            await questions.add(holder, schema, visit.text("name"), carry(on.question))
        case "rename":
            await questions.rename(holder, schema, ids.from_text(target), visit.text("name"))
        case "delete":
            await questions.delete(holder, schema, ids.from_text(target))
        case _:
            raise _unknown()
    return visit.go(f"/schemas/{visit.id}/questions/")


async def _show_saved(visit: Visit, on: SchemaQuestion) -> Response:
    known, lost = await _saved_questions(visit).find_all(
        await _holder(visit), ids.from_text(visit.id)
    )
    return visit.render(
        "saved.html",
        schema=on.schema,
        questions=[_describe(on, question) for question in known],
        lost=lost,
        types=on.types,
        # A question that could not be saved under its name is offered again.
        unsaved=on.question if visit.text("do") == "save" else None,
        name=visit.text("name"),
    )


async def open_question(visit: Visit) -> Response:
    on = await find_question(visit)
    holder = await _holder(visit)
    saved = await _saved_questions(visit).find(
        holder, ids.from_text(visit.id), ids.from_text(visit.part("question"))
    )
    on.question = Question.read(dict(saved.form), on.types)
    keep_question(visit, on)
    return visit.go(f"/schemas/{visit.id}/search/{on.query}")


async def forget_questions(visit: Visit, schemas: Iterable[str]) -> None:
    """Delete the visitor's saved questions of schemas that the visitor has just deleted. Those of
    other users stay, because only the API says that a schema is deleted.
    """
    caller = await services_of(visit.request).caller(visit.as_session())
    known = [ids.from_text(schema) for schema in schemas if fullmatch(ids.PATTERN, schema)]
    await _saved_questions(visit).forget_schemas(caller.user, known)


def _saved_questions(visit: Visit) -> SavedQuestions:
    return services_of(visit.request).saved_questions


async def _holder(visit: Visit) -> Holder:
    """The visitor as the holder of the keyring that encrypts."""
    return await services_of(visit.request).holder(visit.as_session())


def _describe(on: SchemaQuestion, saved: SavedQuestion) -> ListedQuestion:
    question = Question.read(dict(saved.form), on.types)
    order = f"{question.order}, {'descending' if question.descending else 'ascending'}"
    says = question.says(on.types)
    return ListedQuestion(ids.to_text(saved.id), saved.name, says, order if question.order else "")


# --- links ----------------------------------------------------------------------------------------


async def make_link(visit: Visit) -> Response:
    """A link to the question in the form."""
    on = await find_question(visit)
    links = services_of(visit.request).question_links
    link, secret = await links.add(
        ids.from_text(visit.user), ids.from_text(visit.id), carry(on.question)
    )
    url = visit.request.url
    address = f"{url.scheme}://{url.netloc}/go/{visit.id}/{ids.to_text(link)}/#k={secret.text()}"
    return visit.render("question_link.html", schema=on.schema, address=address, days=LINK_DAYS)


async def open_link(visit: Visit) -> Response:
    on = await find_question(visit)  # also checks access to the schema
    if not visit.sends:
        return visit.render("open_link.html", schema=on.schema)
    secret = visit.text("secret").strip().rpartition("#k=")[2]
    links = services_of(visit.request).question_links
    try:
        if on.down is not None:  # access is not confirmed
            raise on.down
        form = await links.open(
            ids.from_text(visit.id), ids.from_text(visit.part("question")), secret
        )
    except errors.DoesNotOpen:
        error = errors.BadInput(
            "this is not the complete link",
            hint="copy all of it, including the part after #, or ask for another link",
        )
        return visit.problem(error, "open_link.html", schema=on.schema)
    except errors.ErsError as error:
        return visit.problem(error, "open_link.html", schema=on.schema)
    on.question = Question.read(dict(form), on.types)
    keep_question(visit, on)
    return visit.go(f"/schemas/{visit.id}/search/{on.query}")


routes = [
    page("/schemas/{id}/questions/", show_saved, methods=("GET", "POST")),
    page("/schemas/{id}/questions/{question}/", open_question),
    page("/schemas/{id}/link/", make_link, methods=("POST",), changes=False),
    page("/go/{id}/{question}/", open_link, methods=("GET", "POST"), changes=False),
]
