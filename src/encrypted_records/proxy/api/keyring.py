"""/api/keyring/: the caller's keyring at this proxy: show, unlock, lock, back up, restore, rotate.

Endpoints that reveal or change keys require a proof in the same request (:mod:`..admission`). A
phrase is a key, and a passphrase opens a key. Both are in bodies of requests, and a phrase is in
the answer to one request; no error, log line or other answer contains a word of either.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from encrypted_records import errors, runtime
from encrypted_records.client.proxy import keyring as structs
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
from encrypted_records.model import credentials, resources
from encrypted_records.model.ids import from_reference, from_text
from encrypted_records.proxy.admission import NOBODY, Applicant
from encrypted_records.proxy.api import json_schema as spec
from encrypted_records.proxy.api.endpoint import Endpoints, proven
from encrypted_records.proxy.api.relay import refusal
from encrypted_records.proxy.http.messages import answer, read_optional, read_struct
from encrypted_records.proxy.keyrings.devices import RESTORE_TRIED, needed_device
from encrypted_records.proxy.keyrings.files import no_keyring
from encrypted_records.proxy.keyrings.holder import Holder, Level
from encrypted_records.proxy.process import aside, deriving
from encrypted_records.proxy.services import Services, services_of


class ProvenRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A request that gives out or changes keys, with its proof."""

    proof: structs.Proof | None = None


class PhrasesRequest(ProvenRequest):
    """A request for recovery phrases.

    Attributes:
        all: also show the phrases of versions whose backup was confirmed.
    """

    all: bool = False


class KeyringFileRequest(ProvenRequest, kw_only=True):
    """A request for a backup file.

    Attributes:
        passphrase: passphrase under which the file is encrypted.
    """

    passphrase: spec.NonEmpty


class ShownBackup(msgspec.Struct, forbid_unknown_fields=True):
    """A backup that the caller shows to have: the phrase of one version, or a file of all."""

    phrase: str | None = None
    file: bytes | None = None
    passphrase: str | None = None


class Restoration(ProvenRequest):
    """A backup to restore: a phrase for each version, or a file of all.

    Attributes:
        older_keys: whether organizations may know the user by a version before the newest.
        dry_run: only compare the backup with the keyring that is here.
    """

    phrases: list[str] | None = None
    file: bytes | None = None
    passphrase: str | None = None
    replace: bool = False
    older_keys: bool = False
    dry_run: bool = False


#: Options of a restore.
_HOW = {
    "replace": spec.FLAG,
    "older_keys": spec.FLAG,
    "dry_run": spec.FLAG,
    "proof": spec.or_null(spec.shape(structs.Proof)),
}
SOME_TEXT = spec.TEXT | {"minLength": 1}

endpoint = Endpoints("keyring")


@endpoint(
    "GET",
    "/api/keyring/",
    summary="Show the keyring's fingerprints and dates. It does not create a keyring.",
    answers={200: spec.json_answer(structs.KeyringInfo)},
)
async def get_keyring(request: Request, services: Services, holder: Holder) -> Response:
    keyring = await existing(services, holder)
    return answer(await runtime.in_thread(info_of, services, holder.user, keyring))


def info_of(services: Services, user: bytes, keyring: Keyring) -> structs.KeyringInfo:
    missing = services.keyrings.backups.missing(user, keyring)
    return structs.KeyringInfo(
        fingerprint=keyring.fingerprint.hex(),
        versions=[
            structs.KeyVersion(
                version, root.created, root.fingerprint.hex(), version not in missing
            )
            for version, root in sorted(keyring.roots.items())
        ],
        wrapping=services.keyrings.wrapping_name(user),
        backup_confirmed=not missing,
        restore_tried=services.admission.enrolment.last_tried(user, keyring.fingerprint.hex()),
    )


@endpoint(
    "GET",
    "/api/keyring/schemas/",
    summary="Show which key version encrypts each schema that you can reach.",
    answers={200: spec.json_answer(spec.array_of(spec.shape(structs.SealedSchema)))},
)
async def list_schema_keys(request: Request, services: Services, caller: Holder) -> Response:
    """The API names the versions, and can lie; whether a key is held is computed here."""
    await existing(services, caller)
    shown = []
    for key in await services.api.schema_keys(caller.auth):
        if key.key_id is None:
            continue
        if key.key_version is None or key.first_key_version is None:
            # Left out, it would be taken for a schema whose key needs no backup.
            raise refusal("a schema has a key without a version")
        versions = key.first_key_version, key.key_version
        available = await _holds(services, caller, key)
        shown.append(structs.SealedSchema(key.url, key.name, *versions, key.key_id, available))
    return answer(shown)


async def _holds(services: Services, caller: Holder, schema: resources.SchemaResource) -> bool:
    organization = from_reference(schema.organization, "organizations", pointer="/organization")
    try:
        key_id = bytes.fromhex(schema.key_id or "")
    except ValueError:
        return False
    return await services.schemas.source.holds(
        caller, organization, from_text(schema.id), schema.key_version or 0, key_id
    )


@endpoint.bare(
    "POST",
    "/api/keyring/rotate/",
    summary="Rotate the key: add a version for new records.",
    body=spec.json_body(ProvenRequest, required=False),
    answers={201: spec.json_answer(structs.KeyringInfo)},
)
async def rotate_keyring(request: Request) -> Response:
    services, holder, _ = await proven(request, ProvenRequest, read_optional)
    try:
        keyring = await deriving(services.keyrings.changes.rotate, holder)
    finally:
        # Also after a failure: the file may have been replaced before it.
        services.schemas.forget_user(holder.user)
    note(services, holder, "key_changed", "rotated")
    return answer(await runtime.in_thread(info_of, services, holder.user, keyring), 201)


@endpoint.bare(
    "POST",
    "/api/keyring/backup/",
    summary="Show the recovery phrases of the versions that need a backup, or of all.",
    body=spec.json_body(PhrasesRequest, required=False),
    answers={200: spec.json_answer(spec.array_of(spec.shape(structs.Phrase)))},
)
async def show_phrases(request: Request) -> Response:
    """If there is no keyring yet, one is made."""
    services, holder, body = await proven(request, PhrasesRequest, read_optional)
    keyring = await runtime.in_thread(services.keyrings.of, holder)
    missing = await runtime.in_thread(services.keyrings.backups.missing, holder.user, keyring)
    note(services, holder, "words_shown")
    wanted = sorted(keyring.roots) if body.all else missing
    return answer(
        [structs.Phrase(version, phrase_of(keyring.roots[version])) for version in wanted]
    )


@endpoint.bare(
    "POST",
    "/api/keyring/backup/file/",
    summary="Download a keyring file under a passphrase, which any account can restore.",
    body=spec.json_body(KeyringFileRequest),
    answers={
        200: spec.answer_of_kinds({"application/octet-stream": {}}, description="A keyring file")
    },
)
async def write_backup_file(request: Request) -> Response:
    services = services_of(request)
    await services.caller(request)
    body = await read_struct(request, KeyringFileRequest)
    passphrase = Passphrase(body.passphrase)
    holder = await services.proofs.demand(request, body.proof)
    keyring = await runtime.in_thread(services.keyrings.of, holder)
    note(services, holder, "file_written")
    file = await deriving(wrap, keyring, passphrase, NO_OWNER)
    return Response(
        file, headers={"Cache-Control": "no-store"}, media_type="application/octet-stream"
    )


@endpoint(
    "POST",
    "/api/keyring/backup/confirm/",
    summary="Confirm which versions have a backup.",
    body=spec.json_body(
        {
            "oneOf": [
                spec.object_of({"phrase": SOME_TEXT}),
                spec.object_of({"file": spec.TEXT, "passphrase": SOME_TEXT}),
            ]
        }
    ),
    answers={200: spec.json_answer(structs.KeyringInfo)},
)
async def confirm_backup(request: Request, services: Services, holder: Holder) -> Response:
    backup = await read_struct(request, ShownBackup)
    if backup.phrase is not None:
        shown_roots = [root_of(backup.phrase, created=0)]
    else:
        shown_roots = list((await _open_file(backup)).roots.values())
    keyring = await existing(services, holder)
    # Fingerprints are public, so comparing them reveals nothing.
    fingerprints = {root.fingerprint for root in keyring.roots.values()}
    if not all(root.fingerprint in fingerprints for root in shown_roots):
        raise errors.BadInput(
            "this is the backup of another keyring",
            code="invalid_phrase",
            hint="use the words that ers keyring backup shows",
        )
    await runtime.in_thread(services.keyrings.backups.confirm, holder.user, shown_roots)
    return answer(await runtime.in_thread(info_of, services, holder.user, keyring))


@endpoint.bare(
    "POST",
    "/api/keyring/restore/",
    summary="Restore a keyring from a backup, or only test the backup.",
    body=spec.json_body(
        {
            "oneOf": [
                spec.object_of({}, phrases=spec.NAMES, **_HOW),
                spec.object_of({"file": spec.TEXT, "passphrase": SOME_TEXT}, **_HOW),
            ]
        }
    ),
    answers={
        200: spec.json_answer(structs.KeyringInfo),
        201: spec.json_answer(structs.KeyringInfo),
    },
)
async def restore_keyring(request: Request) -> Response:
    services = services_of(request)
    if services.mirrored is None:
        await services.caller(request)
    elif services.admission.device_of_person(request) is None:
        raise needed_device()
    restoration = await read_struct(request, Restoration)
    if restoration.dry_run:
        return await _try_restoring(request, restoration)
    if services.mirrored is None:
        applicant = await services.admission.applicant(request, refresh=True)
        holder = await _prove(services, applicant, restoration.proof)
        keyring, proof = await _open_backup(restoration), restoration.proof
    else:
        keyring, user = await _identify(services, restoration)
        applicant = await services.admission.applicant(request, user=user)
        # No proof was required before: the restored words are the proof as well.
        words = restoration.phrases[-1] if restoration.phrases else None
        proof = restoration.proof or structs.Proof(phrase=words)
        holder = await _prove(services, applicant, proof)
    user = applicant.caller.user
    _check_missing(services, applicant, keyring)
    try:
        by_words = proof is not None and proof.phrase is not None
        await deriving(
            services.keyrings.changes.restore,
            holder,
            keyring,
            replace=restoration.replace,
            by_words=by_words,
        )
    finally:
        # Also after a failure: the file may have been replaced before it.
        services.forget(user)
    note(services, holder, "key_changed", "restored")
    note(services, holder, RESTORE_TRIED, keyring.fingerprint.hex())
    if restoration.older_keys:
        await services.sharing.reader.believe_older(holder)
    return answer(await runtime.in_thread(info_of, services, user, keyring), 201)


async def _prove(services: Services, applicant: Applicant, proof: structs.Proof | None) -> Holder:
    """The holder for whom a keyring is restored; replacing an existing keyring needs a proof.

    Raises:
        NotAllowed, Throttled, Closed: as :meth:`Proofs.check`.
    """
    holder = applicant.holder
    if await runtime.in_thread(services.keyrings.is_here, applicant.caller.user):
        holder = replace(await services.proofs.check(applicant, proof), newcomer=holder.newcomer)
    return holder


async def _identify(services: Services, restoration: Restoration) -> tuple[Keyring, bytes]:
    """Open a backup over a mirror, which has no logins, and find its user by the rosters.

    Strangers can call this, and it takes long: after a wrong backup, all of them together have to
    wait.

    Raises:
        BadInput: it is not a backup, or the passphrase is wrong.
        Refused: as :meth:`RosterReader.user_of`.
        Throttled: too soon after a wrong backup.
    """
    attempts = services.proofs.attempts
    attempts.check(NOBODY)
    # Counted before the check, so that many concurrent attempts are not all checked.
    attempts.wrong(NOBODY)
    reader = Holder(NOBODY, services.access.known_here(NOBODY).auth)
    try:
        keyring = await _open_backup(restoration)
        user = await services.sharing.reader.user_of(
            keyring, reader, older_keys=restoration.older_keys
        )
    except errors.Unavailable:
        attempts.right(NOBODY)
        raise
    attempts.right(NOBODY)
    return keyring, user


async def _try_restoring(request: Request, restoration: Restoration) -> Response:
    """Open the backup as for a restore, compare it with the keyring that is here, and record the
    trial. Needs no proof: fingerprints are public, and no key changes.

    Raises:
        BadInput: ``invalid_phrase`` or ``invalid_backup``; the backup lacks a key of the keyring.
        NotFound: ``no_keyring``.
    """
    services = services_of(request)
    holder = await services.holder(request)
    backup = await _open_backup(restoration)
    keyring = await existing(services, holder)
    saved = {root.fingerprint for root in backup.roots.values()}
    lost = [version for version, secret in keyring.roots.items() if secret.fingerprint not in saved]
    if lost:
        code = "invalid_backup" if restoration.phrases is None else "invalid_phrase"
        named = ", ".join(map(str, sorted(lost)))
        raise errors.BadInput(
            f"the backup opens, but it lacks version {named} of the keyring that is here",
            code=code,
            hint="back the keyring up again",
        )
    await runtime.in_thread(services.keyrings.backups.confirm, holder.user, backup.roots.values())
    note(services, holder, RESTORE_TRIED, keyring.fingerprint.hex())
    return answer(await runtime.in_thread(info_of, services, holder.user, keyring))


async def _open_backup(restoration: Restoration) -> Keyring:
    """
    Raises:
        BadInput: it is not a backup, or the passphrase is wrong.
    """
    if restoration.phrases is not None:
        return await aside(keyring_of, restoration.phrases, created=int(runtime.wall()))
    return await _open_file(restoration)


def _check_missing(services: Services, applicant: Applicant, restored: Keyring) -> None:
    """Check whether a user whose keyring is not here may restore one without a proof: only if it
    cannot be the keyring of another user.

    Raises:
        NotAuthenticated: ``device_needed``; at level device, restoring registers a device.
        NotAllowed: ``proof_needed``; the user had a keyring with other keys, and this device was
            not registered for it.
    """
    user = applicant.caller.user
    enrolment = services.admission.enrolment
    if services.keyrings.is_here(user):
        return
    if applicant.device is None and enrolment.policy.level is Level.DEVICE:
        raise needed_device()
    known = enrolment.keyring(user)
    if known is None or applicant.enrolled or applicant.door:
        return
    if not any(root.verifier == known.verifier for root in restored.roots.values()):
        raise errors.NotAllowed(
            "you had another keyring here, and this request does not come from one of its devices",
            code="proof_needed",
            hint="restore the keyring that was here, or use one of its devices, or ers on the"
            " proxy's machine",
        )


async def _open_file(backup: ShownBackup | Restoration) -> Keyring:
    """The keyring in a backup file.

    Raises:
        BadInput: ``invalid_backup``; it is not a backup, or the passphrase is wrong.
    """
    if backup.file is None or backup.passphrase is None:
        raise errors.InvalidQuery("expected a phrase, or a file and its passphrase")
    try:
        passphrase = Passphrase(backup.passphrase)
        return await deriving(unwrap, backup.file, passphrase, NO_OWNER)
    except (errors.DoesNotOpen, errors.Unsupported) as error:
        raise errors.BadInput(
            f"the backup cannot be used: {error.message}",
            code="invalid_backup",
            hint="use the file that ers keyring backup --file wrote, and its passphrase",
        ) from None


def note(services: Services, holder: Holder, kind: str, detail: str = "") -> None:
    services.admission.enrolment.note(holder.user, kind, holder.device, detail)


async def existing(services: Services, holder: Holder) -> Keyring:
    keyring = await runtime.in_thread(services.keyrings.existing, holder)
    if keyring is None:
        raise no_keyring()
    return keyring


class UnlockRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A request to unlock a keyring.

    Attributes:
        passphrase: passphrase of the keyring.
    """

    passphrase: spec.NonEmpty


class PassphraseChange(ProvenRequest, kw_only=True):
    """A new passphrase of a keyring.

    Attributes:
        new: the new passphrase.
        old: the present passphrase, if there is one; it is a proof, too.
    """

    new: spec.NonEmpty
    old: str | None = None


@endpoint.bare(
    "POST",
    "/api/keyring/unlock/",
    summary="Unlock the keyring.",
    body=spec.json_body(UnlockRequest),
    answers={200: spec.json_answer(structs.Unlocked)},
)
async def unlock_keyring(request: Request) -> Response:
    """It stays open until it is locked, is not used for `--lock-after` minutes, or the proxy ends.

    The passphrase enrols the device of the request. If the request has no device, one is made, and
    its secret is in the answer.
    """
    services = services_of(request)
    await services.caller(request)
    passphrase = Passphrase((await read_struct(request, UnlockRequest)).passphrase)
    applicant = await services.admission.applicant(request)
    user = applicant.caller.user
    if not await runtime.in_thread(services.keyrings.is_own, user):
        keyring = await existing(services, await services.holder(request))
        return answer(await runtime.in_thread(info_of, services, user, keyring))
    device = applicant.device or credentials.generate_device_secret()
    keyring = await deriving(
        services.keyrings.unlock, user, passphrase, device=device.id, counted=applicant.counted
    )
    try:
        await runtime.in_thread(
            services.admission.enrolment.register, user, device, "passphrase", "unlocked here"
        )
    except errors.ErsError:
        await runtime.in_thread(services.keyrings.dismiss, user, device.id)
        raise
    shown = await runtime.in_thread(info_of, services, user, keyring)
    if applicant.device:
        return answer(shown)
    return answer(structs.Unlocked(**msgspec.structs.asdict(shown), device=device.text))


@endpoint(
    "POST",
    "/api/keyring/lock/",
    summary="Lock the keyring: forget its keys and everything decrypted with them.",
    answers={200: spec.json_answer(spec.object_of({"locked": spec.FLAG | {"enum": [True]}}))},
)
async def lock_keyring(request: Request, services: Services, holder: Holder) -> Response:
    await runtime.in_thread(services.keyrings.lock, holder)
    services.forget(holder.user)
    return answer({"locked": True})


@endpoint.bare(
    "POST",
    "/api/keyring/passphrase/",
    summary="Set or change the keyring's passphrase, which each device then needs.",
    body=spec.json_body(PassphraseChange),
    answers={200: spec.json_answer(structs.ChangedPassphrase)},
)
async def change_passphrase(request: Request) -> Response:
    services = services_of(request)
    await services.caller(request)
    change = await read_struct(request, PassphraseChange)
    # The current passphrase is the proof for a keyring under a passphrase.
    proof = change.proof or structs.Proof(passphrase=change.old)
    holder = await services.proofs.demand(request, proof)
    old = None if change.old is None else Passphrase(change.old)
    left = await deriving(
        services.keyrings.changes.change_passphrase, holder, old, Passphrase(change.new)
    )
    note(services, holder, "key_changed", "passphrase")
    return answer(structs.ChangedPassphrase("passphrase", left))
