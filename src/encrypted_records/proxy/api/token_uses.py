"""Endpoints of the proxy that an API token may use; all others are refused to tokens.

Judged by the form of the token alone, before anything is read: what it may do is part of the string
that the API knows by its SHA-256, so no answer of the API's widens it. The API decides which
datasets it reaches, and is asked for every schema. Keys, devices and the acceptance of another log
are not for tokens. Jobs and uploads are those that were begun with the very token.

The API judges what is forwarded to it.
"""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import Scope

from encrypted_records.errors import NotAllowed
from encrypted_records.model import credentials
from encrypted_records.proxy.auth import SAFE_METHODS
from encrypted_records.proxy.mirrored import Mirrored

#: (method, path) of what changes nothing.
READING = frozenset(
    {
        ("GET", "/api/records/"),
        ("GET", "/api/records/{id}/"),
        ("POST", "/api/records/sealed/"),
        ("POST", "/api/records/decrypt/"),
        ("POST", "/api/records/search/"),
        ("POST", "/api/records/aggregate/"),
        ("POST", "/api/records/explain/"),
        ("POST", "/api/records/why/"),
        ("POST", "/api/records/export/"),
        ("POST", "/api/records/columns/"),
        ("POST", "/api/datasets/{id}/search/"),
        ("GET", "/api/records/changes/"),
        ("GET", "/api/records/status/"),
        ("POST", "/api/readings/detect/"),
        ("POST", "/api/schemas/infer/"),
        ("POST", "/api/schemas/preview/"),
        ("POST", "/api/schemas/estimate/"),
        ("GET", "/api/schemas/{id}/log/"),
        ("GET", "/api/schemas/{id}/reading/"),
        ("GET", "/api/schemas/{id}/erasure/"),
        ("GET", "/api/schemas/{id}/repair/"),
        ("GET", "/api/schemas/{id}/retention/"),
        ("POST", "/api/schemas/{id}/salvage/"),
        ("POST", "/api/schemas/{id}/verify/"),
        ("GET", "/api/jobs/"),
        ("GET", "/api/jobs/{id}/"),
        ("GET", "/api/jobs/{id}/about/"),
        ("GET", "/api/jobs/{id}/bad-rows/"),
        ("GET", "/api/jobs/{id}/reading/"),
        ("GET", "/api/jobs/{id}/records/"),
        ("GET", "/api/jobs/{id}/errors/"),
        ("GET", "/api/openapi.json"),
        ("GET", "/api/status/"),
    }
)
#: Endpoints that store, change or delete records.
WRITING = frozenset(
    {
        ("POST", "/api/records/ingest/"),
        ("PUT", "/api/records/"),
        ("PUT", "/api/records/{id}/"),
        ("PATCH", "/api/records/{id}/"),
        ("DELETE", "/api/records/{id}/"),
        ("DELETE", "/api/records/"),
        ("POST", "/api/records/delete/"),
        ("POST", "/api/schemas/{id}/merge/"),
        ("POST", "/api/schemas/{id}/erasure/"),
        ("POST", "/api/schemas/{id}/repair/"),
        ("POST", "/api/schemas/{id}/retention/"),
        ("PUT", "/api/schemas/{id}/reading/"),
        ("DELETE", "/api/schemas/{id}/reading/"),
        ("POST", "/api/datasets/{id}/erase/"),
        ("POST", "/api/jobs/upload/"),
        ("DELETE", "/api/jobs/{id}/"),
        ("DELETE", "/api/jobs/{id}/records/"),
    }
)
#: By whatever method, since the one that is meant may stand in a header.
WRITING_PATHS = frozenset({"/api/files/", "/api/files", "/api/files/{id}/", "/api/files/{id}"})


#: Requests that change nothing outside this proxy.
_OF_THIS_PROXY = frozenset(
    {
        ("POST", "/api/keyring/unlock/"),
        ("POST", "/api/keyring/lock/"),
        ("POST", "/api/keyring/restore/"),
        ("POST", "/api/keyring/backup/"),
        ("POST", "/api/keyring/backup/file/"),
        ("POST", "/api/keyring/backup/confirm/"),
        ("POST", "/api/keyring/passphrase/"),
        ("POST", "/api/devices/"),
        ("POST", "/api/devices/code/"),
        ("DELETE", "/api/devices/{id}/"),
    }
)


def refuse_changes(scope: Scope, path: str) -> None:
    """Refuse a request that changes anything, where the proxy reads from a mirror.

    Args:
        path: of the route, with names in braces.

    Raises:
        NotAllowed: ``read_only_mirror``.
    """
    mirrored: Mirrored | None = scope["app"].state.services.mirrored
    if mirrored is None:
        return
    asked = (scope["method"], path)
    reads = scope["method"] in SAFE_METHODS and path not in WRITING_PATHS
    if not reads and asked not in READING and asked not in _OF_THIS_PROXY:
        raise mirrored.refuse_change()


def refuse_beyond(scope: Scope, path: str) -> None:
    """Refuse a request that came with an API token which may not ask for this.

    Args:
        path: of the route, with names in braces.

    Raises:
        NotAllowed: ``token_limited``.
    """
    shown = Headers(scope=scope).get("authorization", "")
    token, of_service = credentials.api_token_of(shown), is_service_string(shown)
    if token is None and not of_service:
        return
    method = "GET" if scope["method"] == "HEAD" else scope["method"]
    if (method, path) in READING:
        return
    if (method, path) not in WRITING and path not in WRITING_PATHS:
        raise NotAllowed(
            f"{'a service' if of_service else 'an API token'} cannot do this",
            code="token_limited",
            hint="log in, and do this as yourself",
        )
    require_writing(token)


def is_service_string(authorization: str) -> bool:
    """Whether an Authorization value is a service's string, which may do what a token may that
    writes; what it reaches, the roster says."""
    scheme, _, shown = authorization.strip().partition(" ")
    return scheme.lower() == "bearer" and credentials.looks_like_service_key(shown)


def require_writing(token: credentials.BearerToken | None) -> None:
    """
    Raises:
        NotAllowed: ``token_limited``; the token only reads.
    """
    if token is not None and not token.writes:
        raise NotAllowed(
            "this API token is read-only",
            code="token_limited",
            hint="create one with --scope write, or log in",
        )
