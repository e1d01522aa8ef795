"""The section of the documents that helps on each page, which its "?" links to."""

from __future__ import annotations

import re

#: The beginning of a page's path -> a document and one of its sections; the first that fits counts.
TARGETS: tuple[tuple[str, str, str], ...] = (
    (r"/help/.*", "web-ui", "keys"),
    (r"(/schemas/[^/]+)?/sql/.*", "sql", "on-a-page"),
    (r"/schemas/[^/]+/(search|overview|questions|add)/.*|/records/.*", "web-ui", "records"),
    (r"/schemas/[^/]+/(upload|jobs)/|/import/|/jobs/.*", "web-ui", "uploads"),
    (r"(/schemas/[^/]+)?/trust/", "leakage", "the-api-its-database-its-backups"),
    (r"/schemas/[^/]+/delete/|/datasets/[^/]+/delete/", "operations", "erasure"),
    (r"/schemas/[^/]+/fields/", "how-to-change-a-schema", "in-place"),
    (r"/(datasets|schemas)/[^/]+/people/", "how-to-invite-a-colleague", "on-pages"),
    (r"/schemas/.*|/datasets/[^/]+/new-schema/", "http-api", "definitions"),
    (r"/datasets/[^/]+/keys/", "how-to-change-a-schema", "sealing-all-records-again"),
    (r"/datasets/.*", "http-api", "datasets"),
    (r"/keyring/", "operations", "the-life-of-a-keyring"),
    (r"/device/", "operations", "who-may-use-a-keyring"),
    (r"/organizations/.*|/invitations/.*|/people/", "how-to-invite-a-colleague", "on-pages"),
    (r"/audit-log/.*", "http-api", "organizations"),
    (r"/account/.*|/(login|register|forgot-password|reset-password|verify-registration)/",
     "web-ui", "safety"),
    (r"/docs/", "http-api", "common-to-all-endpoints"),
)  # fmt: skip
#: The help for every other page.
_OTHERWISE = ("web-ui", "pages")
_PATTERNS = [(re.compile(path), f"/help/{name}/{anchor}/") for path, name, anchor in TARGETS]


def find_help(path: str) -> str:
    """The address, below the secret path, of what helps on the page of this path."""
    for pattern, address in _PATTERNS:
        if pattern.fullmatch(path):
            return address
    name, anchor = _OTHERWISE
    return f"/help/{name}/{anchor}/"
