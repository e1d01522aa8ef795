"""The question that a window asks of a schema, between two requests.

- A form carries its whole question. The address carries a random name of it, under which it waits
  on the desk of the session for a reload; what is asked is in no address.
- A question on the desk never changes: a changed one gets a name of its own, so that two windows
  keep theirs, also where one was opened from the other.
- A schema that was shown is remembered, so that a page keeps its filters while the API is down.
  It is asked for again after some seconds, and after each form that may have changed it: a search
  asks the API one thing less.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from encrypted_records import runtime
from encrypted_records.errors import ErsError, Unavailable
from encrypted_records.proxy.pages.page import Visit
from encrypted_records.proxy.pages.search_form import Question, types_of

_NAME_BYTES = 12
#: How long a schema is taken as it was shown.
FRESH_SECONDS = 10.0
#: Characters of a question that is kept for a reload.
MOST_KEPT = 64 << 10
#: Members of a form that say which page of the answer is shown.
_OF_A_PAGE = ("pages", "asked", "start")


@dataclass(frozen=True, slots=True)
class _ShownSchema:
    content: dict[str, Any]
    asked_at: float


@dataclass(slots=True)
class SchemaQuestion:
    """A schema that is being searched: ``types`` of its fields by name, in their order.

    ``name`` is that of the question; ``down`` says that the API cannot be asked just now.
    """

    schema: dict[str, Any]
    types: dict[str, str]
    question: Question
    name: str = ""
    down: ErsError | None = None
    #: of a refused export, to be said once
    refused: ErsError | None = field(default=None, repr=False)

    #: whether the address names a question that is not on the desk
    unknown: bool = False
    #: what the window asked before a form was sent
    before: Question = field(default_factory=Question, repr=False)
    #: whether the schema is as it was shown some seconds ago
    remembered: bool = False
    #: whether an answer did not fit the schema
    in_doubt: bool = False
    #: the schema as it is now, where it was not waited for
    asking: asyncio.Task[dict[str, Any] | ErsError] | None = field(default=None, repr=False)

    def address(self, visit: Visit, page: str) -> tuple[str, str]:
        """The header that gives a script's page its new address: a step that the browser's Back
        undoes, or, where the answer stays as it is, the same step."""
        stays = self.question.applied() == self.before.applied()
        path = f"{visit.at}/schemas/{visit.id}/{page}/{self.query}"
        return "HX-Replace-Url" if stays else "HX-Push-Url", path

    @property
    def query(self) -> str:
        """The query string of a page that shows this question."""
        return f"?q={self.name}" if self.name else ""

    async def is_outdated(self, visit: Visit) -> bool:
        """Whether the schema is another by now than the one that was taken early, where that was
        asked, or is in doubt.

        Raises:
            ErsError: it is gone, or not for this visitor any more.
        """
        if self.asking is None and not (self.remembered and self.in_doubt):
            return False
        schema = await (self.asking or _ask_for_schema(visit))
        if isinstance(schema, Unavailable):
            return False
        if isinstance(schema, ErsError):
            raise schema
        return schema != self.schema


async def find_question(visit: Visit, *, early: bool = False, asks: bool = True) -> SchemaQuestion:
    """The schema in the page's path, and the question of the form or of the address.

    Args:
        early: take the schema as it was shown last, and ask for it meanwhile
            (:meth:`SchemaQuestion.is_outdated`).
        asks: whether an early one is asked for at all.

    Raises:
        ErsError: there is no such schema, or the API is down and it was not shown before.
    """
    shown = visit.desk.find(("schema", visit.id), _ShownSchema)
    asking: asyncio.Task[dict[str, Any] | ErsError] | None = None
    down: ErsError | None = None
    remembered = early and shown is not None
    if early and shown is not None:
        if asks and not _is_fresh(visit, shown):
            asking = asyncio.create_task(_ask_for_schema(visit))  # noqa: TID251 # ends with its request
        schema = shown.content
    else:
        answer = await _ask_for_schema(visit)
        if isinstance(answer, ErsError):
            if shown is None or not isinstance(answer, Unavailable):
                raise answer
            schema, down = shown.content, answer
        else:
            schema = answer
    types = types_of(schema["schema"])
    if visit.sends:
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
    refused = visit.desk.take(("refused", visit.id, name), ErsError)
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
    """The question of this name on a schema's page of records; where it is not on the desk, one
    that shows records as the last window did."""
    kept = visit.desk.find(("search", schema, name), Question)
    return kept or visit.desk.find(("view", schema), Question) or Question()


def carry(question: Question) -> list[tuple[str, str]]:
    """Names and values of the form's fields for a question that is kept, and begins at the first
    page."""
    return [pair for pair in question.carried() if pair[0] not in _OF_A_PAGE]


async def _ask_for_schema(visit: Visit) -> dict[str, Any] | ErsError:
    try:
        schema: dict[str, Any] = await visit.ask("GET", f"/api/schemas/{visit.id}/")
    except ErsError as error:
        return error
    visit.desk.put(("schema", visit.id), _ShownSchema(schema, runtime.monotonic()))
    return schema


def _is_fresh(visit: Visit, shown: _ShownSchema) -> bool:
    changed_at = visit.desk.changed_at
    return shown.asked_at > max(changed_at, runtime.monotonic() - FRESH_SECONDS)


def keep_question(visit: Visit, on: SchemaQuestion) -> bool:
    """Put the question on the desk and name it, unless it is very long: its forms carry it."""
    visit.question = on.name
    if visit.desk.find(("search", visit.id, on.name), Question) == on.question:
        return True
    visit.question = on.name = ""
    question = on.question.copy()
    if sum(len(name) + len(text) for name, text in question.carried()) > MOST_KEPT:
        return False
    visit.question = on.name = runtime.random_text(_NAME_BYTES)
    visit.desk.put(("search", visit.id, on.name), question)
    # How records are shown stays for a window that is opened later; what is asked does not.
    view = Question(hidden=question.hidden, dense=question.dense, sealed=question.sealed)
    visit.desk.put(("view", visit.id), view)
    return True
