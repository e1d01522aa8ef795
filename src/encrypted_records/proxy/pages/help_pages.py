"""Help: the project's documents as pages, for everybody who reaches the proxy, and finding in them.

Nothing of it comes from elsewhere, so it is there without a network.
"""

from __future__ import annotations

from starlette.responses import Response

from encrypted_records.errors import NotFound
from encrypted_records.proxy.pages import help_parts, manual
from encrypted_records.proxy.pages.page import PAGE_HEADERS, Visit, page
from encrypted_records.proxy.process.offload import aside

_PICTURES = {".svg": "image/svg+xml", ".webp": "image/webp", ".png": "image/png"}


async def start(visit: Visit) -> Response:
    """All documents, or search results. The search text is only in the form's body."""
    wanted = visit.text("wanted").strip()[:100]
    found = await aside(manual.find, wanted) if wanted else []
    # As HTML, which is escaped there.
    results = [
        (section, manual.mark_words(manual.cut_snippet(section, wanted), wanted))
        for section in found
    ]
    listed = await aside(manual.list_documents)
    return visit.render("help.html", wanted=wanted, results=results, documents=listed)


async def show(visit: Visit) -> Response:
    """A page of a document."""
    shown = await aside(_load, visit.part("name"))
    name = shown.pages[0]
    number = shown.pages.index(shown.name) + 1
    return visit.render(
        "help_page.html", document=shown, title=manual.find_title(name), number=number
    )


def _load(name: str) -> manual.Document:
    try:
        return manual.load_document(name)
    except KeyError:
        raise NotFound("there is no such page") from None


async def lead(visit: Visit) -> Response:
    """To a section, on the page that has it. The types of errors end so: ``errors/not_found``."""
    address = await aside(help_parts.find_address, visit.part("name"), visit.part("anchor"))
    if address is None:
        raise NotFound("there is no such section")
    return visit.go(f"/help/{address}")


async def picture(visit: Visit) -> Response:
    """Serve a picture of the documents."""
    path = help_parts.list_images().get(visit.part("name"))
    kind = _PICTURES.get(path.suffix) if path else None
    if path is None or kind is None:
        raise NotFound("there is no such picture")
    return Response(await aside(path.read_bytes), headers=PAGE_HEADERS, media_type=kind)


routes = [
    page("/help/", start, methods=("GET", "POST"), public=True),
    page("/help/{name}/", show, public=True),
    page("/help/images/{name}", picture, public=True),
    page("/help/{name}/{anchor}/", lead, public=True),
]
