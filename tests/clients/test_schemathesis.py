"""Both OpenAPI documents, held by schemathesis: what it finds is mended, or has a reason here."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.model import wire
from encrypted_records.proxy.api import ROUTES
from encrypted_records.proxy.api.endpoint import operations_of
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
_VERSION = "TUS responds with 412 if `Tus-Resumable` is missing or names another version."
_LINKS = "Passwords are entered twice and have rules of their own; links are signed."
_ROWS = "CSV and sample records have a format that JSON Schema does not describe."
_IDS = "22 valid characters can exceed the range of an identifier."
_CELLS = "`safe_cells` and `with_schema_id` apply to CSV only."
_DEFINITIONS = "The members of a definition depend on each other."
_BACKUPS = "The words and the file of a backup contain checksums."
#: docs/http-api.md has the reasons, too.
ACCEPTED = (
    Accepted(
        *("ignored_auth", ".*", 429, "too_many_failures"),
        "After many wrong passwords, the response is 429 instead of 401.",
    ),
    Accepted(TAKEN, FILES, 412, "(version_refused)?", _VERSION),
    Accepted("missing_required_header", FILES, 412, "(version_refused)?", _VERSION),
    Accepted(
        *(TAKEN, r"OPTIONS /api/files/\{id\}/", 204, ""),
        "`OPTIONS` of TUS lists the supported extensions for any upload.",
    ),
    Accepted(
        *(TAKEN, FILES, 201, ""),
        "Unknown headers are ignored.",
        case="in header - object with unexpected properties",
    ),
    Accepted(
        *(REFUSED, "POST /api/files/", 400, "invalid_header"),
        "Creation headers are mutually exclusive: a length, a deferred length, or parts.",
    ),
    Accepted(
        *(TAKEN, "POST /api/jobs/upload/", 201, ""),
        "The body of a job is checked by the job, which reports problems in `error`.",
    ),
    Accepted(
        *(REFUSED, "POST /api/(jobs/upload|schemas/(infer|estimate|preview))/", 400),
        *("csv_header|malformed", _ROWS),
    ),
    Accepted(
        *(REFUSED, "POST /api/jobs/upload/", 400, "invalid_query: invalid_parameter"),
        "`by` names fields, and is valid only with `X-On-Conflict: replace`.",
    ),
    Accepted(
        *(REFUSED, "POST /api/schemas/(infer|estimate|preview)/", 400),
        *("invalid_records(: .*)?", _ROWS),
    ),
    Accepted(
        *(REFUSED, "POST /api/readings/detect/", 400, "reading"),
        "Detecting a reading fails for bytes that are not a table in text form.",
    ),
    Accepted(
        *(REFUSED, "POST /api/webhooks/", 400, "invalid_query.*"),
        "The address of a webhook begins with `https://` and is a public one.",
    ),
    Accepted(
        *(REFUSED, "GET /api/records/changes/", 400, "invalid_query: cursor"),
        "A cursor of changes is that of an earlier answer.",
    ),
    Accepted(
        *(REFUSED, r"PUT /api/schemas/\{id\}/reading/|POST /api/schemas/preview/", 400, "reading"),
        "The members of a reading depend on each other and on the schema.",
    ),
    Accepted(
        REFUSED,
        r"POST /api/accounts/[\w/-]+/",
        400,
        "invalid: (password_.*|wrong_password|wrong_code)",
        _LINKS,
    ),
    Accepted(REFUSED, r"POST /api/accounts/[\w-]+/", 400, "invalid_link", _LINKS),
    Accepted(
        *(REFUSED, "POST /api/schemas/preview/", 400, "invalid_query"),
        "With a `reading`, the `sample` of a preview is base64.",
    ),
    Accepted(
        *(REFUSED, ".*", 400, "invalid(_records)?: unknown_reference"),
        "A well-formed reference to something that does not exist is 400, with its pointer.",
    ),
    Accepted(
        *(REFUSED, r"POST /api/organizations/\{organization_id\}/services/", 400),
        *(
            "invalid: invalid",
            "`expires` does not accept leap seconds or an offset of a whole day.",
        ),
    ),
    Accepted(
        *(REFUSED, ".*", 400, "invalid: invalid_reference"),
        "An absolute URL must point to this service, whose host names are not in the document.",
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
        "An `Idempotency-Key` contains the time of its creation.",
    ),
    Accepted(
        *(REFUSED, "DELETE /api/records/", 400, "invalid: invalid"),
        "Where `DELETE /api/records/` has `version`, it has one for each `id`.",
    ),
    Accepted(
        *(REFUSED, r"POST /api/invitations/\{id\}/words/", 400, "invitation_words"),
        "An invitation has twelve words from a list, and they contain a checksum.",
    ),
    Accepted(
        *(TAKEN, "PUT /api/records/", 413, "too_many_records"),
        "Too many records in one request are 413.",
    ),
    Accepted(
        *(REFUSED, "POST /api/devices/", 400, "invalid_query"),
        "A device is identified by a header and registered by one of several members.",
    ),
    Accepted(
        *(REFUSED, "(POST|PUT|PATCH) /api/records/.*", 400, "invalid_records: read_only"),
        "A record that is sent back must have its own `id` and `url`, and unchanged values of other"
        " response-only members.",
    ),
    Accepted(REFUSED, ".*", 400, "malformed_id", _IDS),
    Accepted(REFUSED, r"HEAD /api/files/\{id\}/", 400, "", _IDS),
    Accepted(
        *(REFUSED, "GET /api/records/", 400, "invalid: required"),
        "A list of records needs a schema or record ids.",
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
