"""A proxy that runs for one command answers that command alone."""

from __future__ import annotations

import hmac

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from encrypted_records.errors import NotAllowed
from encrypted_records.http import problem
from encrypted_records.model.device_secret import INLINE_HEADER
from encrypted_records.proxy.http.responses import problem_answer


class Private:
    """ASGI middleware.

    Args:
        secret: what each request has to carry in the header ``X-ERS-Inline``; None for a proxy
            that answers others as well.
    """

    def __init__(self, app: ASGIApp, secret: str | None) -> None:
        self._app = app
        self._secret = None if secret is None else secret.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._secret is not None and scope["type"] in ("http", "websocket"):
            shown = Headers(scope=scope).get(INLINE_HEADER, "").encode("latin-1")
            if not hmac.compare_digest(shown, self._secret):
                refusal = NotAllowed(
                    "this proxy runs for one command, and answers no other",
                    code="inline_only",
                    hint="start one of your own: ers proxy",
                )
                await problem_answer(problem.of_error(refusal))(scope, receive, send)
                return
        await self._app(scope, receive, send)
