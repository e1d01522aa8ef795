"""/api/keyring/: what the caller's keyring is, opening it, backing it up, and bringing it here.

A phrase is a key, and a passphrase opens one. They are in bodies of requests, and a phrase is in
the answer to one; no error, log line or other answer holds a word of either.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from encrypted_records.client.api import SchemaKeyState
from encrypted_records.crypto.format import NO_OWNER
from encrypted_records.crypto.keys import Keyring
from encrypted_records.crypto.recovery import (
    Passphrase,
    keyring_of,
    phrase_of,
    root_of,
    unwrap,
    wrap,
)
from encrypted_records.errors import BadInput, DoesNotOpen, InvalidQuery, KeyMissing, Unsupported
from encrypted_records.model.ids import from_reference, from_text
from encrypted_records.proxy.answers import answer
from encrypted_records.proxy.keyrings import no_keyring
from encrypted_records.proxy.parts import Parts, parts_of
from encrypted_records.proxy.routes.bodies import media_type, read_json


class _Wanted(msgspec.Struct, forbid_unknown_fields=True):
    all: bool = False


class _Unlocking(msgspec.Struct, forbid_unknown_fields=True):
    passphrase: str


class _Change(msgspec.Struct, forbid_unknown_fields=True):
    new: str
    old: str | None = None


class _Shown(msgspec.Struct, forbid_unknown_fields=True):
    """A backup that the caller shows to have: the phrase of one version, or a file of all."""

    phrase: str | None = None
    file: bytes | None = None
    passphrase: str | None = None


class _Restoration(msgspec.Struct, forbid_unknown_fields=True):
    """A backup to restore: a phrase for each version, or a file of all."""

    phrases: list[str] | None = None
    file: bytes | None = None
    passphrase: str | None = None
    replace: bool = False


async def show(request: Request) -> Response:
    """GET /api/keyring/: fingerprints and dates. It makes no keyring where there is none."""
    parts = parts_of(request)
    user = (await parts.caller(request)).user
    keyring = await _existing(parts, user)
    return answer(await asyncio.to_thread(_keyring_json, parts, user, keyring))


def _keyring_json(parts: Parts, user: bytes, keyring: Keyring) -> dict[str, Any]:
    missing = parts.keyrings.backups.missing(user, keyring)
    return {
        "fingerprint": keyring.fingerprint.hex(),
        "versions": [
            {
                "version": version,
                "created": root.created,
                "fingerprint": root.fingerprint.hex(),
                "backup_confirmed": version not in missing,
            }
            for version, root in sorted(keyring.roots.items())
        ],
        "wrapping": parts.keyrings.wrapping_name(user),
        "backup_confirmed": not missing,
    }


async def schemas(request: Request) -> Response:
    """GET /api/keyring/schemas/: which version seals each schema that the caller reaches.

    The API says it, and can lie; that a key is held is computed here.
    """
    parts = parts_of(request)
    caller = await parts.caller(request)
    keyring = await _existing(parts, caller.user)
    return answer(
        [
            {
                "url": one.url,
                "name": one.name,
                "first_key_version": one.first_key_version,
                "key_version": one.key_version,
                "key_id": one.key_id,
                "held": _holds(keyring, one),
            }
            for one in await parts.api.schema_keys(caller.auth)
            if one.key_id is not None
        ]
    )


def _holds(keyring: Keyring, schema: SchemaKeyState) -> bool:
    organization = from_reference(schema.organization, "organizations", pointer="/organization")
    try:
        keyring.schema(organization, from_text(schema.id)).named(
            schema.key_version or 0, bytes.fromhex(schema.key_id or "")
        )
    except (KeyMissing, ValueError):
        return False
    return True


async def rotate(request: Request) -> Response:
    """POST /api/keyring/rotate/: a new version, which seals from now on."""
    parts = parts_of(request)
    user = (await parts.caller(request)).user
    try:
        keyring = await asyncio.to_thread(parts.keyrings.rotate, user)
    finally:
        # Also after a failure: it may have come when the file was replaced already.
        parts.schemas.forget_user(user)
    return answer(await asyncio.to_thread(_keyring_json, parts, user, keyring), 201)


async def backup(request: Request) -> Response:
    """POST /api/keyring/backup/: the recovery phrases of the versions that need a backup, or of
    all, of a keyring made now if there is none."""
    parts = parts_of(request)
    user = (await parts.caller(request)).user
    # A body may be left out.
    asked = await _read(request, _Wanted) if media_type(request) else _Wanted()
    keyring = await asyncio.to_thread(parts.keyrings.of, user)
    missing = await asyncio.to_thread(parts.keyrings.backups.missing, user, keyring)
    wanted = sorted(keyring.roots) if asked.all else missing
    return answer([{"version": one, "phrase": phrase_of(keyring.roots[one])} for one in wanted])


async def backup_file(request: Request) -> Response:
    """POST /api/keyring/backup/file/: a keyring file under a passphrase, that any account opens."""
    parts = parts_of(request)
    user = (await parts.caller(request)).user
    passphrase = Passphrase((await _read(request, _Unlocking)).passphrase)
    keyring = await asyncio.to_thread(parts.keyrings.of, user)
    file = await asyncio.to_thread(wrap, keyring, passphrase, NO_OWNER)
    return Response(
        file, headers={"Cache-Control": "no-store"}, media_type="application/octet-stream"
    )


async def confirm(request: Request) -> Response:
    """POST /api/keyring/backup/confirm/: the caller has a backup; remember of which versions."""
    parts = parts_of(request)
    user = (await parts.caller(request)).user
    asked = await _read(request, _Shown)
    if asked.phrase is not None:
        told = [root_of(asked.phrase, created=0)]
    else:
        told = list((await _opened_file(asked)).roots.values())
    keyring = await _existing(parts, user)
    # Fingerprints are public, so comparing them gives nothing away.
    here = {root.fingerprint for root in keyring.roots.values()}
    if not all(root.fingerprint in here for root in told):
        raise BadInput(
            "that is the backup of another keyring",
            code="invalid_phrase",
            hint="take the words that ers keyring backup shows",
        )
    await asyncio.to_thread(parts.keyrings.backups.confirm, user, told)
    return answer(await asyncio.to_thread(_keyring_json, parts, user, keyring))


async def restore(request: Request) -> Response:
    """POST /api/keyring/restore/: make the keyring of a backup the caller's."""
    parts = parts_of(request)
    user = (await parts.caller(request)).user
    asked = await _read(request, _Restoration)
    if asked.phrases is not None:
        keyring = keyring_of(asked.phrases, created=int(time.time()))
    else:
        keyring = await _opened_file(asked)
    try:
        await asyncio.to_thread(parts.keyrings.restore, user, keyring, replace=asked.replace)
    finally:
        # Also after a failure: it may have come when the file was replaced already.
        _forget(parts, user)
    return answer(await asyncio.to_thread(_keyring_json, parts, user, keyring), 201)


async def _opened_file(asked: _Shown | _Restoration) -> Keyring:
    """The keyring in a backup file.

    Raises:
        BadInput: ``invalid_backup``; it is none, or of another passphrase.
    """
    if asked.file is None or asked.passphrase is None:
        raise InvalidQuery("expected a phrase, or a file and its passphrase")
    try:
        passphrase = Passphrase(asked.passphrase)
        return await asyncio.to_thread(unwrap, asked.file, passphrase, NO_OWNER)
    except (DoesNotOpen, Unsupported) as error:
        raise BadInput(
            f"the backup cannot be used: {error.message}",
            code="invalid_backup",
            hint="take the file that ers keyring backup --file wrote, and its passphrase",
        ) from None


async def unlock(request: Request) -> Response:
    """POST /api/keyring/unlock/: open the keyring for as long as this proxy runs."""
    parts = parts_of(request)
    user = (await parts.caller(request)).user
    passphrase = Passphrase((await _read(request, _Unlocking)).passphrase)
    keyring = await asyncio.to_thread(parts.keyrings.unlock, user, passphrase)
    return answer(await asyncio.to_thread(_keyring_json, parts, user, keyring))


async def lock(request: Request) -> Response:
    """POST /api/keyring/lock/: forget a keyring that was unlocked here, and what it opened."""
    parts = parts_of(request)
    user = (await parts.caller(request)).user
    await asyncio.to_thread(parts.keyrings.lock, user)
    _forget(parts, user)
    return answer({"locked": True})


async def change_passphrase(request: Request) -> Response:
    """POST /api/keyring/passphrase/: seal the keyring under another passphrase."""
    parts = parts_of(request)
    user = (await parts.caller(request)).user
    asked = await _read(request, _Change)
    old = None if asked.old is None else Passphrase(asked.old)
    left = await asyncio.to_thread(
        parts.keyrings.change_passphrase, user, old, Passphrase(asked.new)
    )
    return answer({"wrapping": "passphrase", "left": left})


def _forget(parts: Parts, user: bytes) -> None:
    """Drop all that was opened with the user's keyring."""
    parts.schemas.forget_user(user)
    parts.segments.clear()


async def _existing(parts: Parts, user: bytes) -> Keyring:
    keyring = await asyncio.to_thread(parts.keyrings.existing, user)
    if keyring is None:
        raise no_keyring()
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
    Route("/api/keyring/schemas/", schemas, methods=["GET"]),
    Route("/api/keyring/rotate/", rotate, methods=["POST"]),
    Route("/api/keyring/backup/", backup, methods=["POST"]),
    Route("/api/keyring/backup/file/", backup_file, methods=["POST"]),
    Route("/api/keyring/backup/confirm/", confirm, methods=["POST"]),
    Route("/api/keyring/restore/", restore, methods=["POST"]),
    Route("/api/keyring/unlock/", unlock, methods=["POST"]),
    Route("/api/keyring/lock/", lock, methods=["POST"]),
    Route("/api/keyring/passphrase/", change_passphrase, methods=["POST"]),
]
