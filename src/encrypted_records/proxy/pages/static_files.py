"""Style sheets, scripts and pictures: addresses that change with the content, kept by browsers.

- ``/static/pages.0123456789ab.css`` is ``pages.css`` as long as its SHA-256 begins so. The content
  of such an address never changes, so a browser keeps it for a year without asking again.
- The plain address works as well, and an address of older content leads to what there is now; both
  are asked for again each time.
- These files are the same for everybody and hold no secret, so they go out compressed. Pages do
  not: docs/decisions/pages.md says why.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from importlib.resources import files

from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

_PACKAGE = "encrypted_records.proxy.pages"
_DIGITS = 12
_ADDRESS = re.compile(rf"(?P<stem>[a-z/-]+)\.(?P<digest>[0-9a-f]{{{_DIGITS}}})\.(?P<ending>[a-z]+)")
_KEPT = "public, max-age=31536000, immutable"


def address_of(name: str) -> str:
    """The address of a file of ``static/``, such as ``built/pages.js``, with its digest in it."""
    digest = _digest_of(name)
    stem, dot, ending = name.rpartition(".")
    return f"/static/{stem}.{digest}.{ending}" if digest and dot else f"/static/{name}"


@lru_cache(maxsize=256)
def _digest_of(name: str) -> str:
    """The first digits of the file's SHA-256; empty where there is no such file."""
    path = files(_PACKAGE).joinpath("static", name)
    if not path.is_file():
        return ""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:_DIGITS]


class _Files(StaticFiles):
    async def get_response(self, path: str, scope: Scope) -> Response:
        match = _ADDRESS.fullmatch(path)
        name = f"{match['stem']}.{match['ending']}" if match else path
        response = await super().get_response(name, scope)
        is_present = match is not None and match["digest"] == _digest_of(name)
        response.headers["Cache-Control"] = _KEPT if is_present else "no-cache"
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response


def application() -> GZipMiddleware:
    """The ASGI application below ``/static``."""
    return GZipMiddleware(_Files(packages=[(_PACKAGE, "static")]), minimum_size=500)
