"""Links to questions, for others who can read the schema and are logged in at this proxy.

The secret that opens a question is in the fragment of the link, after ``#``, which browsers do not
send. The page of the link copies it into its form (web/src/links.js); without scripts it is typed.
"""

from __future__ import annotations

from starlette.responses import Response

from encrypted_records.errors import BadInput, DoesNotOpen, ErsError
from encrypted_records.model.ids import from_text, to_text
from encrypted_records.proxy.pages.page import Visit, page
from encrypted_records.proxy.pages.questions import carry, find_question, keep_question
from encrypted_records.proxy.pages.search_form import Question
from encrypted_records.proxy.saved_questions import LINK_DAYS
from encrypted_records.proxy.services import services_of


async def make(visit: Visit) -> Response:
    """A link to the question that the form carries."""
    on = await find_question(visit)
    links = services_of(visit.request).question_links
    link, secret = await links.add(from_text(visit.user), from_text(visit.id), carry(on.question))
    url = visit.request.url
    address = f"{url.scheme}://{url.netloc}/go/{visit.id}/{to_text(link)}/#k={secret.text()}"
    return visit.render("question_link.html", schema=on.schema, address=address, days=LINK_DAYS)


async def open_link(visit: Visit) -> Response:
    on = await find_question(visit)  # also asks whether the visitor reaches the schema
    if not visit.sends:
        return visit.render("open_link.html", schema=on.schema)
    secret = visit.text("secret").strip().rpartition("#k=")[2]
    links = services_of(visit.request).question_links
    try:
        if on.down is not None:  # the API has not said that the visitor still reaches it
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
    page("/schemas/{id}/link/", make, methods=("POST",), changes=False),
    page("/go/{id}/{question}/", open_link, methods=("GET", "POST"), changes=False),
]
