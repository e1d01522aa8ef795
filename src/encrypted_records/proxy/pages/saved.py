"""Questions saved by name, encrypted at this proxy, and links to questions for others.

A saved question has a URL that reveals nothing of its content, so that it can be bookmarked.

A link is for others who can read the schema and are logged in at this proxy. The secret that opens
its question is in the fragment of the link, after ``#``, which browsers do not send. The page of
the link copies it into its form (web/src/links.js); without scripts it is typed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from re import fullmatch
from typing import Any

from starlette.responses import Response

from encrypted_records.errors import BadInput, DoesNotOpen, ErsError
from encrypted_records.model import ids
from encrypted_records.model.ids import from_text, to_text
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.pages.page import Visit, page
from encrypted_records.proxy.pages.questions import (
    SchemaQuestion,
    carry,
    find_question,
    keep_question,
)
from encrypted_records.proxy.pages.search_form import Question
from encrypted_records.proxy.saved_questions import LINK_DAYS, SavedQuestion, SavedQuestions
from encrypted_records.proxy.services import services_of


@dataclass(frozen=True, slots=True)
class ListedQuestion:
    """A saved question as the page shows it; ``says`` are its parts."""

    id: str
    name: str
    says: list[str]
    order: str


async def show(visit: Visit) -> Response:
    """All saved questions of a schema; the forms save, rename and delete one."""
    on = await find_question(visit)
    if not visit.sends:
        return await _show(visit, on)
    action, _, target = visit.text("do").partition(":")
    holder = await _holder(visit)
    questions, schema = _saved_questions(visit), from_text(visit.id)
    try:
        match action:
            case "save":
                await questions.add(holder, schema, visit.text("name"), carry(on.question))
            case "rename":
                await questions.rename(holder, schema, from_text(target), visit.text("name"))
            case "delete":
                await questions.delete(holder, schema, from_text(target))
            case _:
                raise BadInput("the page has no such button", hint="load the page again")
    except BadInput as error:
        return await _show(visit, on, error)
    return visit.go(f"/schemas/{visit.id}/questions/")


async def _show(visit: Visit, on: SchemaQuestion, problem: ErsError | None = None) -> Response:
    known, lost = await _saved_questions(visit).find_all(await _holder(visit), from_text(visit.id))
    shown: dict[str, Any] = {
        "schema": on.schema,
        "questions": [_describe(on, question) for question in known],
        "lost": lost,
        "types": on.types,
        # A question that could not be saved under its name is offered again.
        "unsaved": on.question if visit.text("do") == "save" else None,
        "name": visit.text("name"),
    }
    if problem is not None:
        return visit.problem(problem, "saved.html", **shown)
    return visit.render("saved.html", **shown)


async def open_question(visit: Visit) -> Response:
    on = await find_question(visit)
    holder = await _holder(visit)
    saved = await _saved_questions(visit).find(
        holder, from_text(visit.id), from_text(visit.part("question"))
    )
    on.question = Question.read(dict(saved.form), on.types)
    keep_question(visit, on)
    return visit.go(f"/schemas/{visit.id}/search/{on.query}")


async def forget_questions(visit: Visit, schemas: Iterable[str]) -> None:
    """Delete the visitor's saved questions of schemas that the visitor has just deleted. Those of
    other users stay, because only the API says that a schema is deleted.
    """
    caller = await services_of(visit.request).caller(visit.as_session())
    known = [from_text(schema) for schema in schemas if fullmatch(ids.PATTERN, schema)]
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
    return ListedQuestion(to_text(saved.id), saved.name, says, order if question.order else "")


# --- links ----------------------------------------------------------------------------------------


async def make_link(visit: Visit) -> Response:
    """A link to the question in the form."""
    on = await find_question(visit)
    links = services_of(visit.request).question_links
    link, secret = await links.add(from_text(visit.user), from_text(visit.id), carry(on.question))
    url = visit.request.url
    address = f"{url.scheme}://{url.netloc}/go/{visit.id}/{to_text(link)}/#k={secret.text()}"
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
        form = await links.open(from_text(visit.id), from_text(visit.part("question")), secret)
    except DoesNotOpen:
        error = BadInput(
            "this is not the complete link",
            hint="copy all of it, including the part after #, or ask for another link",
        )
        return visit.problem(error, "open_link.html", schema=on.schema)
    except ErsError as error:
        return visit.problem(error, "open_link.html", schema=on.schema)
    on.question = Question.read(dict(form), on.types)
    keep_question(visit, on)
    return visit.go(f"/schemas/{visit.id}/search/{on.query}")


routes = [
    page("/schemas/{id}/questions/", show, methods=("GET", "POST")),
    page("/schemas/{id}/questions/{question}/", open_question),
    page("/schemas/{id}/link/", make_link, methods=("POST",), changes=False),
    page("/go/{id}/{question}/", open_link, methods=("GET", "POST"), changes=False),
]
