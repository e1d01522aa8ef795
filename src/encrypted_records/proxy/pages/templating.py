"""The templates of the pages, and what they use: static files, links to help, error texts.

Static files are style sheets, scripts and pictures. Their addresses change with the content, and
browsers cache them:

- ``/static/pages.0123456789ab.css`` is ``pages.css`` while its SHA-256 begins with these digits.
  The content of such an address never changes, so a browser caches it for a year without
  revalidation.
- The plain address works as well, and an address of older content leads to the current content;
  browsers revalidate both each time.
- These files are the same for all users and contain no secret, so they are sent compressed. Pages
  are not: docs/decisions/pages.md says why.

Error texts are in the terms of the pages: what happened, and the page that helps, instead of a
command. An error's own message is shown if this module has no text for it. The page always has its
code behind "Details", so that it can be looked up in docs/errors.md.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.ext import Extension
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from encrypted_records.errors import ErsError, Flaw
from encrypted_records.proxy.pages import formatting
from encrypted_records.proxy.pages.formatting import widget_of
from encrypted_records.proxy.pages.search_form import example_of
from encrypted_records.runtime import random_text

# --- static files ---------------------------------------------------------------------------------

_PACKAGE = "encrypted_records.proxy.pages"
_DIGITS = 12
_ADDRESS = re.compile(rf"(?P<stem>[a-z/-]+)\.(?P<digest>[0-9a-f]{{{_DIGITS}}})\.(?P<ending>[a-z]+)")
_KEPT = "public, max-age=31536000, immutable"


def static_address(name: str) -> str:
    """The address of a file in ``static/``, such as ``built/pages.js``, with its digest."""
    digest = _digest_of(name)
    stem, dot, ending = name.rpartition(".")
    return f"/static/{stem}.{digest}.{ending}" if digest and dot else f"/static/{name}"


@lru_cache(maxsize=256)
def _digest_of(name: str) -> str:
    """The first digits of the file's SHA-256; empty if there is no such file."""
    path = files(_PACKAGE).joinpath("static", name)
    if not path.is_file():
        return ""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:_DIGITS]


class _StaticFiles(StaticFiles):
    async def get_response(self, path: str, scope: Scope) -> Response:
        match = _ADDRESS.fullmatch(path)
        name = f"{match['stem']}.{match['ending']}" if match else path
        response = await super().get_response(name, scope)
        is_present = match is not None and match["digest"] == _digest_of(name)
        response.headers["Cache-Control"] = _KEPT if is_present else "no-cache"
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response


def static_application() -> GZipMiddleware:
    """The ASGI application below ``/static``."""
    return GZipMiddleware(_StaticFiles(packages=[(_PACKAGE, "static")]), minimum_size=500)


# --- help for a page: its "?" ---------------------------------------------------------------------

#: Prefix of a page's path -> a document and one of its sections; the first match counts.
HELP_TARGETS: tuple[tuple[str, str, str], ...] = (
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
_PATTERNS = [(re.compile(path), f"/help/{name}/{anchor}/") for path, name, anchor in HELP_TARGETS]


def find_help(path: str) -> str:
    """The address of the help for the page with this path, below the secret path."""
    for pattern, address in _PATTERNS:
        if pattern.fullmatch(path):
            return address
    name, anchor = _OTHERWISE
    return f"/help/{name}/{anchor}/"


# --- errors ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ErrorText:
    """The text of an error on a page.

    Attributes:
        text: what happened, in sentences.
        hint: what to do, in sentences; may be empty.
        path: a page that helps, with ``label``; empty if there is no such page.
        unlocks: whether typing the keyring's passphrase here helps.
    """

    text: str
    hint: str = ""
    path: str = ""
    label: str = ""
    unlocks: bool = False


_KEYRING = ("/keyring/", "Go to the keyring")
_SAID = {
    "keyring_locked": ErrorText("The keyring is locked.", "", *_KEYRING, unlocks=True),
    "csrf_failed": ErrorText(
        "You have logged in again since this page was loaded, so nothing was changed.",
        "Load the page again, then send the form again.",
    ),
    "invalid_idempotency_key": ErrorText(
        "This form was loaded more than a day ago, so nothing was stored.",
        "Check whether the record is already stored; if it is not, store it again.",
    ),
    "device_needed": ErrorText(
        "This browser is not registered, so it cannot use the keyring.",
        "Register it with a code.",
        "/device/",
        "Register this browser",
    ),
    "key_missing": ErrorText(
        "These records are encrypted with a key that is not in your keyring here.",
        "Ask somebody who has it for a backup of the keyring, and restore it here.",
        *_KEYRING,
    ),
    "no_keyring": ErrorText("You have no keyring here yet.", "", *_KEYRING),
    "invalid_backup": ErrorText(
        "This is not a backup of a keyring, or the passphrase is wrong.",
        "Choose a file that was downloaded here, and enter the passphrase that you chose for it.",
    ),
    "log_broken": ErrorText(
        "The server's data of this schema is inconsistent, so no answer can be trusted.",
        "None of it is shown. Ask the operator of the server to restore the newest backup.",
    ),
    "not_admitted": ErrorText(
        "You are not in the signed member list of this organization.",
        "If you were invited, open the invitation and enter its twelve words; an owner's"
        " proxy then admits you.",
        "/organizations/",
        "Look for an invitation",
    ),
    "roster_missing": ErrorText(
        "The organization has records, but the server shows no signed member list.",
        "If something was shared before, the list is hidden: ask the operator of the server"
        " to restore the newest backup. If nothing was shared, sharing is only possible in a"
        " new organization.",
    ),
    "owners_have_all": ErrorText(
        "Owners read and write every dataset.", "Change the owner to a member first."
    ),
    "proof_wrong": ErrorText(
        "The proof is wrong.", "Enter it again; each wrong proof makes the next wait longer."
    ),
    "api_unreachable": ErrorText(
        "The API does not answer.",
        "Try again in a moment.",
    ),
    "api_timeout": ErrorText("The API takes too long to answer.", "Try again in a moment."),
}


#: Parts of messages that say more than the text for their code: a key of the machine that typing
#: cannot open, and a backup that opens but lacks keys of the keyring.
_OWN_WORDS = ("is not here", "the backup opens, but")


def error_text(error: ErsError) -> ErrorText:
    if error.reason == "keyring_locked" and "cannot be decrypted with" in error.message:
        return ErrorText("The keyring cannot be unlocked with this passphrase.", "Enter it again.")
    if error.reason in _SAID and not any(word in error.message for word in _OWN_WORDS):
        return _SAID[error.reason]
    return ErrorText(_sentence(error.message), _sentence(error.hint))


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}." if text else ""


def flaws_of(error: ErsError | None, field: str) -> list[Flaw]:
    """The errors of one field of a form."""
    if error is None:
        return []
    return [flaw for flaw in error.flaws if (flaw.pointer or "").strip("/") == field]


# --- templates ------------------------------------------------------------------------------------


class _Unindented(Extension):
    """Lines of templates without their indentation, which no browser shows."""

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        return re.sub(r"^[ \t]+", "", source, flags=re.MULTILINE)


templates = Environment(
    loader=PackageLoader("encrypted_records.proxy.pages"),
    autoescape=True,
    trim_blocks=True,
    extensions=[_Unindented],
    undefined=StrictUndefined,
    # Otherwise each page checks on disk whether its templates have changed.
    auto_reload=False,
)
templates.filters |= formatting.FILTERS
templates.filters |= {"error_text": error_text, "flaws_of": flaws_of}
templates.globals |= {"static": static_address, "find_help": find_help}
templates.globals |= {"widget_of": widget_of, "example_of": example_of, "random_text": random_text}
