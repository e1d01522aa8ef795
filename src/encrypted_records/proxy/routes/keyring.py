"""/api/keyring/: what the caller's keyring is, its recovery phrase, and bringing it here.

The phrase is the key. It is in the answer to one request and in the bodies of two; no error, log
line or other answer holds a word of it.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from encrypted_records.crypto.keys import Keyring
from encrypted_records.crypto.recovery import keyring_of, phrase_of
from encrypted_records.errors import BadInput, InvalidQuery, NotFound
from encrypted_records.proxy.answers import answer
from encrypted_records.proxy.parts import Parts, parts_of
from encrypted_records.proxy.routes.bodies import read_json


class _Phrase(msgspec.Struct, forbid_unknown_fields=True):
    phrase: str


class _Restoration(msgspec.Struct, forbid_unknown_fields=True):
    phrase: str
    replace: bool = False


async def show(request: Request) -> Response:
    """GET /api/keyring/: fingerprints and dates. It makes no keyring where there is none."""
    parts = parts_of(request)
    user = (await parts.caller(request)).user
    keyring = await _existing(parts, user)
    return answer(await asyncio.to_thread(_keyring_json, parts, user, keyring))


def _keyring_json(parts: Parts, user: bytes, keyring: Keyring) -> dict[str, Any]:
    return {
        "fingerprint": keyring.fingerprint.hex(),
        "versions": [
            {
                "version": version,
                "created": root.created,
                "fingerprint": root.fingerprint.hex(),
            }
            for version, root in sorted(keyring.roots.items())
        ],
        "wrapping": parts.keyrings.wrapping_name(user),
        "backup_confirmed": parts.keyrings.backup_confirmed(user, keyring),
    }


async def backup(request: Request) -> Response:
    """POST /api/keyring/backup/: the recovery phrase, of a keyring made now if there is none."""
    parts = parts_of(request)
    user = (await parts.caller(request)).user
    keyring = await asyncio.to_thread(parts.keyrings.of, user)
    return answer({"phrase": phrase_of(keyring)})


async def confirm(request: Request) -> Response:
    """POST /api/keyring/backup/confirm/: the caller has the phrase; remember that."""
    parts = parts_of(request)
    user = (await parts.caller(request)).user
    asked = await _read(request, _Phrase)
    told = keyring_of(asked.phrase, created=0)
    keyring = await _existing(parts, user)
    # Fingerprints are public, so comparing them gives nothing away.
    if told.fingerprint != keyring.fingerprint:
        raise BadInput(
            "that is the recovery phrase of another keyring",
            code="invalid_phrase",
            hint="take the words that /api/keyring/backup/ shows",
        )
    await asyncio.to_thread(parts.keyrings.confirm_backup, user, keyring)
    return answer({"backup_confirmed": True})


async def restore(request: Request) -> Response:
    """POST /api/keyring/restore/: make the phrase's keyring the caller's."""
    parts = parts_of(request)
    user = (await parts.caller(request)).user
    asked = await _read(request, _Restoration)
    keyring = keyring_of(asked.phrase, created=int(time.time()))
    try:
        await asyncio.to_thread(parts.keyrings.restore, user, keyring, replace=asked.replace)
    finally:
        # Also after a failure: it may have come when the file was replaced already.
        parts.schemas.forget_user(user)
        parts.segments.clear()
    return answer(await asyncio.to_thread(_keyring_json, parts, user, keyring), 201)


async def _existing(parts: Parts, user: bytes) -> Keyring:
    keyring = await asyncio.to_thread(parts.keyrings.existing, user)
    if keyring is None:
        raise NotFound(
            "you have no keyring here yet",
            code="no_keyring",
            hint="it is made with the first records that are stored, or restored from its phrase",
        )
    return keyring


async def _read(request: Request, kind: Any) -> Any:
    """The body, of which no error repeats anything."""
    try:
        return msgspec.json.decode(await read_json(request), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        members = ", ".join(field.name for field in msgspec.structs.fields(kind))
        raise InvalidQuery(
            f"expected an object with: {members}", hint="docs/http-api.md describes the body"
        ) from None


routes = [
    Route("/api/keyring/", show, methods=["GET"]),
    Route("/api/keyring/backup/", backup, methods=["POST"]),
    Route("/api/keyring/backup/confirm/", confirm, methods=["POST"]),
    Route("/api/keyring/restore/", restore, methods=["POST"]),
]
