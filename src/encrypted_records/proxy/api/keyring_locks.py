"""/api/keyring/unlock/, lock/ and passphrase/: what opens the caller's keyring here.

A passphrase opens a keyring. It is in the bodies of requests; no error, log line or answer has it.
"""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from encrypted_records import runtime
from encrypted_records.crypto.recovery import (
    Passphrase,
)
from encrypted_records.errors import (
    ErsError,
)
from encrypted_records.model import device_secret
from encrypted_records.proxy.admission.proof import Proof
from encrypted_records.proxy.api.endpoint import Endpoints
from encrypted_records.proxy.api.json_schema import (
    FLAG,
    NUMBER,
    OBJECT,
    PROOF,
    SOME_TEXT,
    TEXT_OR_NULL,
    json_answer,
    json_body,
    object_of,
    one_of,
)
from encrypted_records.proxy.api.keyring import existing, forget, keyring_json, note
from encrypted_records.proxy.http.bodies import read_struct
from encrypted_records.proxy.http.responses import answer
from encrypted_records.proxy.process.offload import deriving
from encrypted_records.proxy.services import services_of


class _Unlocking(msgspec.Struct, forbid_unknown_fields=True):
    passphrase: str


class _Change(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    proof: Proof | None = None
    new: str
    old: str | None = None


endpoint = Endpoints("keyring")


@endpoint(
    "POST",
    "/api/keyring/unlock/",
    summary="open the keyring on this device.",
    body=json_body(object_of({"passphrase": SOME_TEXT})),
    answers={200: json_answer(OBJECT)},
)
async def unlock_keyring(request: Request) -> Response:
    """It stays open until it is locked, is not used for `--lock-after` minutes, or the proxy ends.

    The passphrase enrols the device of the request. If the request has no device, one is made, and
    its secret is in the answer.
    """
    services = services_of(request)
    await services.caller(request)
    passphrase = Passphrase((await read_struct(request, _Unlocking)).passphrase)
    applicant = await services.admission.applicant(request)
    user = applicant.caller.user
    if not await runtime.in_thread(services.keyrings.is_own, user):
        keyring = await existing(services, await services.holder(request))
        return answer(await runtime.in_thread(keyring_json, services, user, keyring))
    device = applicant.device or device_secret.generate()
    keyring = await deriving(
        services.keyrings.unlock, user, passphrase, device=device.id, counted=applicant.counted
    )
    try:
        await runtime.in_thread(
            services.admission.enrolment.take_in, user, device, "passphrase", "unlocked here"
        )
    except ErsError:
        await runtime.in_thread(services.keyrings.dismiss, user, device.id)
        raise
    shown = await runtime.in_thread(keyring_json, services, user, keyring)
    return answer(shown if applicant.device else {**shown, "device": device.text})


@endpoint(
    "POST",
    "/api/keyring/lock/",
    summary="forget a keyring that was unlocked here, and all that was decrypted with it.",
    answers={200: json_answer(object_of({"locked": FLAG | {"enum": [True]}}))},
)
async def lock_keyring(request: Request) -> Response:
    services = services_of(request)
    holder = await services.holder(request)
    await runtime.in_thread(services.keyrings.lock, holder)
    forget(services, holder.user)
    return answer({"locked": True})


@endpoint(
    "POST",
    "/api/keyring/passphrase/",
    summary="encrypt the keyring under another passphrase, which each device then needs.",
    body=json_body(object_of({"new": SOME_TEXT}, old=TEXT_OR_NULL, proof=PROOF)),
    answers={200: json_answer(object_of({"wrapping": one_of("passphrase"), "left": NUMBER}))},
)
async def change_passphrase(request: Request) -> Response:
    services = services_of(request)
    await services.caller(request)
    asked = await read_struct(request, _Change)
    # The present passphrase is the proof that a keyring under one asks for.
    proof = asked.proof or Proof(passphrase=asked.old)
    holder = await services.proofs.demand(request, proof)
    old = None if asked.old is None else Passphrase(asked.old)
    left = await deriving(
        services.keyrings.changes.change_passphrase, holder, old, Passphrase(asked.new)
    )
    note(services, holder, "key_changed", "passphrase")
    return answer({"wrapping": "passphrase", "left": left})
