"""Both OpenAPI documents, held by schemathesis: what it finds is mended, or has a reason here."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.model import wire
from encrypted_records.proxy.api.endpoint import operations_of
from encrypted_records.proxy.api.routes import ROUTES
from tests.support.schemathesis_runs import LONGEST_SECONDS, SECONDS, Finding, run
from tests.support.service import Service, call

DOCS = Path(__file__).parents[2] / "docs" / "http-api.md"


@dataclass(frozen=True)
class Accepted:
    """Findings that are no mistakes, and why; all but numbers are regular expressions."""

    check: str
    operation: str
    status: int
    code: str
    reason: str
    case: str = ""

    def covers(self, finding: Finding) -> bool:
        return (
            (self.check, self.status) == (finding.check, finding.status)
            and re.fullmatch(self.operation, finding.operation) is not None
            and re.fullmatch(self.code, finding.code) is not None
            and re.search(self.case, finding.case + finding.message) is not None
        )


REFUSED, TAKEN = "positive_data_acceptance", "negative_data_rejection"
FILES = r"\w+ /api/files/(\{id\}/)?"
_VERSION = "TUS answers 412 where `Tus-Resumable` is missing or another version."
_LINKS = "Passwords are entered twice and have rules of their own; links are signed."
_ROWS = "CSV, and samples of records, have a form that a JSON Schema does not describe."
_IDS = "22 characters of the right kind can be too large for an identifier."
_CELLS = "`safe_cells` and `with_schema_id` are for CSV alone."
_DEFINITIONS = "A definition has rules that hold between its members."
_BACKUPS = "The words and the file of a backup carry checksums."
#: docs/http-api.md has the reasons, too.
ACCEPTED = (
    Accepted(
        *("ignored_auth", ".*", 429, "too_many_failures"),
        "After many wrong passwords, the next one is answered 429 instead of 401.",
    ),
    Accepted(TAKEN, FILES, 412, "(version_refused)?", _VERSION),
    Accepted("missing_required_header", FILES, 412, "(version_refused)?", _VERSION),
    Accepted(
        *(TAKEN, r"OPTIONS /api/files/\{id\}/", 204, ""),
        "`OPTIONS` of TUS lists what is supported, for any upload.",
    ),
    Accepted(
        *(TAKEN, FILES, 201, ""),
        "Unknown headers are ignored.",
        case="in header - object with unexpected properties",
    ),
    Accepted(
        *(REFUSED, "POST /api/files/", 400, "invalid_header"),
        "The headers of a creation exclude each other: a length, a deferred length, parts.",
    ),
    Accepted(
        *(TAKEN, "POST /api/jobs/upload/", 201, ""),
        "The job checks its body, and its `error` says what is wrong.",
    ),
    Accepted(
        *(REFUSED, "POST /api/(jobs/upload|schemas/(infer|estimate|preview))/", 400),
        *("csv_header|malformed", _ROWS),
    ),
    Accepted(
        *(REFUSED, "POST /api/jobs/upload/", 400, "invalid_query: invalid_parameter"),
        "`by` names fields, and is of `X-On-Conflict: replace` alone.",
    ),
    Accepted(
        *(REFUSED, "POST /api/schemas/(infer|estimate|preview)/", 400),
        *("invalid_records(: .*)?", _ROWS),
    ),
    Accepted(
        *(REFUSED, "POST /api/readings/detect/", 400, "reading"),
        "The detection of a reading refuses bytes that are not a table in text.",
    ),
    Accepted(
        *(REFUSED, r"PUT /api/schemas/\{id\}/reading/|POST /api/schemas/preview/", 400, "reading"),
        "A reading has rules that hold between its members, and between them and a schema.",
    ),
    Accepted(
        REFUSED, r"POST /api/accounts/[\w-]+/", 400, "invalid: (password_.*|wrong_password)", _LINKS
    ),
    Accepted(REFUSED, r"POST /api/accounts/[\w-]+/", 400, "invalid_link", _LINKS),
    Accepted(
        *(REFUSED, "POST /api/schemas/preview/", 400, "invalid_query"),
        "With a `reading`, the `sample` of a preview is base64.",
    ),
    Accepted(
        *(REFUSED, "(POST|PUT|PATCH) .*", 400, "invalid(_records)?: unknown_reference"),
        "A reference of the right form to something that does not exist is 400, with its place.",
    ),
    Accepted(
        *(REFUSED, r"POST /api/organizations/\{organization_id\}/services/", 400),
        *("invalid: invalid", "`expires` takes no leap seconds and no offset of a whole day."),
    ),
    Accepted(
        *(REFUSED, ".*", 400, "invalid: invalid_reference"),
        "An absolute URL must point to this service, and a document does not know its host names.",
    ),
    Accepted(REFUSED, "(POST|PUT|PATCH) .*", 400, "invalid_definition: .*", _DEFINITIONS),
    Accepted(
        *(REFUSED, "POST /api/keyring/.*", 400, "invalid_(backup|phrase)"),
        _BACKUPS,
    ),
    Accepted(
        *(REFUSED, r"POST /api/(records/export|schemas/\{id\}/salvage)/", 400),
        *("invalid_query: type", _CELLS),
    ),
    Accepted(
        *(REFUSED, "POST /api/records/ingest/", 400, "invalid_idempotency_key: invalid"),
        "An `Idempotency-Key` holds the time at which it was made.",
    ),
    Accepted(
        *(REFUSED, r"POST /api/invitations/\{id\}/words/", 400, "invitation_words"),
        "An invitation's words are twelve of a list, and carry a checksum.",
    ),
    Accepted(
        *(TAKEN, "PUT /api/records/", 413, "too_many_records"),
        "More records than one request may have are 413.",
    ),
    Accepted(
        *(REFUSED, "POST /api/devices/", 400, "invalid_query"),
        "A device identifies itself by a header, and one of several members registers it.",
    ),
    Accepted(
        *(REFUSED, "(POST|PUT|PATCH) /api/records/.*", 400, "invalid_records: read_only"),
        "A record that is sent back must have its own `id` and `url`, and its own values of the"
        " other members that only answers have.",
    ),
    Accepted(REFUSED, ".*", 400, "malformed_id", _IDS),
    Accepted(REFUSED, r"HEAD /api/files/\{id\}/", 400, "", _IDS),
    Accepted(
        *(REFUSED, "GET /api/records/", 400, "invalid: required"),
        "A list of records names a schema, or the records.",
    ),
)


def own(document: dict[str, Any]) -> dict[str, Any]:
    """The proxy's document without the API's operations, which are asked at the API."""
    declared = {(operation.method.lower(), operation.path) for operation in operations_of(ROUTES)}
    # Of the WebSocket, a GET is no use.
    declared.discard(("get", "/api/ws/jobs/{id}/"))
    return chosen(document, lambda method, path, _: (method, path) in declared)


def without_frames(document: dict[str, Any]) -> dict[str, Any]:
    """The API's document without bodies that are no text, which nobody makes by chance.

    Their paths go as a whole: what a path is said to have, is compared with what it has.
    """
    framed = {path for path, one in document["paths"].items() if wire.MEDIA_TYPE in repr(one)}
    return chosen(document, lambda _method, path, _one: path not in framed)


def chosen(
    document: dict[str, Any], wanted: Callable[[str, str, dict[str, Any]], bool]
) -> dict[str, Any]:
    paths = {
        path: {method: one for method, one in methods.items() if wanted(method, path, one)}
        for path, methods in document["paths"].items()
    }
    return document | {"paths": {path: methods for path, methods in paths.items() if methods}}


@pytest.mark.timeout(LONGEST_SECONDS + 60)
@pytest.mark.parametrize(
    ("host", "part", "least"), [("api", without_frames, 800), ("proxy", own, 800)]
)
def test_schemathesis_finds_nothing_that_has_no_reason(
    services: Callable[[str], Service],
    tmp_path: Path,
    host: str,
    part: Callable[[dict[str, Any]], dict[str, Any]],
    least: int,
) -> None:
    service = services("sqlite")
    account = service.new_account()
    url = service.base_url if host == "api" else service.proxy_url
    document = call("GET", f"{url}/api/openapi.json", auth=account.auth).json()
    asked, findings = run(part(document), url, (account.email, account.password), tmp_path)
    left = [finding for finding in findings if not any(known.covers(finding) for known in ACCEPTED)]
    assert not left, "\n".join(sorted({str(one) for one in left}))
    assert SECONDS or asked > least


def test_every_reason_stands_in_the_documents() -> None:
    text = " ".join(DOCS.read_text().split())
    reasons = {known.reason for known in ACCEPTED}
    assert [reason for reason in reasons if f"- {reason}" not in text] == []
