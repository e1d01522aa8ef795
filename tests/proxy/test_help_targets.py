"""The "?" of every page leads to a part of the documents that is there."""

from __future__ import annotations

import pytest
from starlette.routing import Route

from encrypted_records.proxy import pages
from encrypted_records.proxy.pages.manual import find_address
from encrypted_records.proxy.pages.templating import find_help

PATHS = [route.path for route in pages.routes if isinstance(route, Route)]


@pytest.mark.parametrize("path", PATHS)
def test_a_page_leads_to_a_section_that_exists(path: str) -> None:
    _, _, name, anchor, _ = find_help(path).split("/")
    assert find_address(name, anchor) is not None


def test_pages_lead_to_what_they_are_about() -> None:
    assert find_help("/schemas/x/search/") == "/help/web-ui/records/"
    assert find_help("/schemas/x/questions/y/") == "/help/web-ui/records/"
    assert find_help("/keyring/") == "/help/operations/the-life-of-a-keyring/"
    assert find_help("/schemas/x/edit/") == "/help/http-api/definitions/"
    assert find_help("/") == "/help/web-ui/pages/"
