"""Limits of bodies, by path; and the paths whose bodies hold nothing but sealed bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

MAX_BODY_BYTES = 2 << 20
#: Paths of sealed rows, pages and grants take more.
MAX_FRAMES_BYTES = 64 << 20
#: Where nobody needs credentials, less will do.
MAX_OPEN_BYTES = 64 << 10
_OF_FRAMES = re.compile(
    r"/api/(commits|schemas/[^/]+/(staging|checkpoints)|jobs/[^/]+/publish|organizations/[^/]+/roster)/"
)
_OPEN = re.compile(r"/(api/accounts|api/token|admin)/.*", re.DOTALL)


def are_sealed(path: str) -> bool:
    """Whether bodies of this path are frames of sealed rows and pages."""
    return _OF_FRAMES.fullmatch(path) is not None


def limit_of(path: str) -> int:
    """The most bytes that a body of this path may have."""
    if _OPEN.fullmatch(path):
        return MAX_OPEN_BYTES
    return MAX_FRAMES_BYTES if are_sealed(path) else MAX_BODY_BYTES


def is_within(length: str, path: str) -> bool:
    """Whether a body whose Content-Length says ``length`` may be sent to this path."""
    return length.isascii() and length.isdigit() and int(length) <= limit_of(path)


def is_to_be_read(environ: Mapping[str, Any]) -> bool:
    """Whether a request has a body that may be read; :class:`middleware.RequestGate` refuses
    those that may not."""
    length = environ.get("CONTENT_LENGTH") or "0"
    sound = "HTTP_TRANSFER_ENCODING" not in environ and is_within(length, environ["PATH_INFO"])
    return sound and int(length) > 0
