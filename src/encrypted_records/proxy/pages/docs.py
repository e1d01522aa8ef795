"""The reference of all endpoints: /api/openapi.json for people."""

from __future__ import annotations

import json

from starlette.responses import Response

from encrypted_records.errors import ApiFailed
from encrypted_records.http import openapi as reference
from encrypted_records.proxy.pages.page import Visit, page


async def docs(visit: Visit) -> Response:
    document = json.loads((await visit.answer("GET", "/api/openapi.json")).body)
    try:
        html = reference.page(document)
    except (AttributeError, KeyError, TypeError, IndexError):
        raise ApiFailed(
            "the API's document is not an OpenAPI document", code="api_answer"
        ) from None
    return visit.show(html, reference.CONTENT_SECURITY_POLICY)


routes = [page("/docs/", docs)]
