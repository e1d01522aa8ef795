"""/api/devices/: the devices that may open the caller's keyring here, and the registration of
others.

A device is registered for a proof: a code from a registered device, the keyring's own passphrase,
the words of its newest version, or the door. Authentication by the API is never enough. The secret
of a device that is made here is shown once, in the answer.
"""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from encrypted_records import runtime
from encrypted_records.client.proxy import keyring as structs
from encrypted_records.crypto.recovery import Passphrase
from encrypted_records.errors import InvalidQuery, NotAllowed, NotFound
from encrypted_records.model import credentials
from encrypted_records.model.ids import from_text, to_text
from encrypted_records.proxy.admission import NOBODY, Applicant, wrong_code, wrong_proof
from encrypted_records.proxy.api import json_schema as spec
from encrypted_records.proxy.api.endpoint import Endpoints
from encrypted_records.proxy.http.messages import answer, read_optional, read_struct
from encrypted_records.proxy.keyrings.devices import DeviceRecord, needed_device
from encrypted_records.proxy.keyrings.files import no_keyring
from encrypted_records.proxy.keyrings.holder import Holder, Level
from encrypted_records.proxy.process import deriving
from encrypted_records.proxy.services import Services, services_of


class DeviceRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A device to register.

    Attributes:
        create: make another device, instead of registering that of this request.
    """

    name: str = ""
    code: str | None = None
    passphrase: str | None = None
    phrase: str | None = None
    create: bool = False
    proof: structs.Proof | None = None


class DeviceCodeRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A request for a code that registers a device.

    Attributes:
        user: id of the user for whom the code is, if it is another user.
    """

    user: str | None = None
    proof: structs.Proof | None = None


class RevocationRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The proof that revoking another device needs."""

    proof: structs.Proof | None = None


endpoint = Endpoints("devices", id_schema={"type": "string", "pattern": "^[A-Za-z0-9]{8}$"})


@endpoint.bare(
    "GET",
    "/api/devices/",
    summary="Show the access level, the keyring, its devices, and its events.",
    answers={200: spec.json_answer(structs.Devices)},
)
async def list_devices(request: Request) -> Response:
    """A caller whose device is not enrolled sees when the keyring was made, and how many devices it
    has. A user who was never here is warned by that.
    """
    services = services_of(request)
    applicant = await services.admission.applicant(request)
    return answer(await runtime.in_thread(_overview, services, applicant))


def _overview(services: Services, applicant: Applicant) -> structs.Devices:
    user, enrolment = applicant.caller.user, services.admission.enrolment
    level, has_passphrase = enrolment.policy.level, services.keyrings.is_own(user)
    devices, known = enrolment.devices(user), enrolment.keyring(user)
    level = Level.DEVICE if has_passphrase else level
    this = applicant.device.id if applicant.device is not None else ""
    is_shown = level == Level.API or applicant.enrolled or applicant.door
    return structs.Devices(
        user=to_text(user),
        level=level,
        enrolled=applicant.enrolled,
        keyring=None
        if known is None
        else structs.KnownKeyring(known.made, known.fingerprint.hex(), has_passphrase),
        count=len(devices),
        # At level device, any listening address is safe.
        exposed=enrolment.policy.exposed and level == Level.API,
        devices=[_info(device, this) for device in devices] if is_shown else None,
        events=[
            structs.DeviceEvent(
                event.at, event.kind, event.device or None, event.detail or None, event.count
            )
            for event in enrolment.events(user)
        ]
        if is_shown
        else None,
    )


def _info(device: DeviceRecord, this: str) -> structs.DeviceInfo:
    return structs.DeviceInfo(
        id=device.id,
        name=device.name,
        way=device.way,
        created=device.created,
        used=device.used,
        this=device.id == this,
    )


@endpoint.bare(
    "POST",
    "/api/devices/",
    summary="Register the device of this request, or create another device.",
    body=spec.json_body(DeviceRequest),
    answers={
        201: spec.json_answer(
            {"anyOf": [spec.shape(structs.DeviceInfo), spec.shape(structs.OwnDevice)]}
        ),
    },
)
async def add_device(request: Request) -> Response:
    services = services_of(request)
    if services.mirrored is None:
        await services.caller(request)
    elif services.admission.device_of_person(request) is None:
        raise needed_device()
    body = await read_struct(request, DeviceRequest)
    if body.create:
        return await _create(request, services, body)
    user = None if services.mirrored is None else await _find_user(request, services, body)
    applicant = await services.admission.applicant(request, refresh=True, user=user)
    user, device = applicant.caller.user, applicant.device
    if device is None:
        raise InvalidQuery(
            f"this registers the device of the header {credentials.DEVICE_HEADER}, which"
            " is missing",
            hint="ers device add sends this header; to have a device created, send create",
        )
    if not applicant.enrolled:
        if not await runtime.in_thread(services.keyrings.has, user):
            raise no_keyring()
        way = await _way_in(services, applicant, body)
        await runtime.in_thread(services.admission.enrolment.register, user, device, way, body.name)
    record = await runtime.in_thread(_of_id, services, user, device.id)
    return answer(_info(record, device.id), 201)


async def _find_user(request: Request, services: Services, body: DeviceRequest) -> bytes | None:
    """The user whose device is to be registered over a mirror, which has no logins: the user in the
    proof, or the only user of this proxy. None if the device is registered.

    Raises:
        NotAllowed: ``code_wrong``, ``proof_wrong``; ``proof_needed``: the proxy has several users.
        Throttled: too soon after a wrong proof.
    """
    device = services.admission.device_of_person(request)
    if device is not None and services.admission.enrolment.owner_of(device) is not None:
        return None
    if body.code is None and body.phrase is None:
        users = services.admission.enrolment.users()
        if len(users) != 1:
            raise NotAllowed(
                "this does not show which user of this proxy you are",
                code="proof_needed",
                hint="use a code from a registered device, or the words of your keyring",
            )
        return users[0]
    attempts = services.proofs.attempts
    attempts.check(NOBODY)
    if body.code is not None:
        user = services.admission.codes.user_of(body.code)
    else:
        user = await runtime.in_thread(services.keyrings.user_of_words, body.phrase or "")
    if user is None:
        attempts.wrong(NOBODY)
        raise wrong_code() if body.code is not None else wrong_proof()
    attempts.right(NOBODY)
    return user


async def _way_in(services: Services, applicant: Applicant, body: DeviceRequest) -> str:
    """The purpose for which the device is registered.

    Raises:
        NotAllowed: ``code_wrong``, ``proof_wrong``; ``proof_needed``: there is no proof.
        Closed: ``keyring_locked``: the passphrase is wrong.
        Throttled: too soon after a wrong proof.
    """
    user = applicant.caller.user
    if body.code is not None:
        try:
            await runtime.in_thread(services.admission.codes.use, user, body.code)
        except NotAllowed:
            services.admission.enrolment.note(user, "refused", detail="code")
            raise
        return "code"
    if body.phrase is not None:
        await services.proofs.words(applicant, body.phrase)
        return "words"
    if body.passphrase is not None:
        if not await runtime.in_thread(services.keyrings.is_own, user):
            raise NotAllowed(
                "the keyring has no passphrase of its own",
                code="proof_needed",
                hint="use a code from a registered device, or the words of the keyring",
            )
        assert applicant.device is not None
        await deriving(
            services.keyrings.unlock,
            user,
            Passphrase(body.passphrase),
            device=applicant.device.id,
            counted=applicant.counted,
        )
        return "passphrase"
    if applicant.door:
        return "door"
    raise NotAllowed(
        "the request contains no proof for registering a device",
        code="proof_needed",
        hint="send a code from a registered device, the keyring's own passphrase, or the words of"
        " its newest version; ers on the proxy's machine needs none of them",
    )


async def _create(request: Request, services: Services, body: DeviceRequest) -> Response:
    """Make a further device here, and a keyring if the user has none."""
    holder = await services.proofs.demand(request, body.proof)
    device = credentials.generate_device_secret()
    user = holder.user
    if not await runtime.in_thread(services.keyrings.has, user):
        newcomer = Holder(user, holder.auth, None, holder.newcomer or device, holder.address)
        await runtime.in_thread(services.keyrings.of, newcomer)
    record = await runtime.in_thread(
        services.admission.enrolment.register, user, device, "device", body.name
    )
    made = msgspec.structs.asdict(_info(record, ""))
    return answer(structs.OwnDevice(**made, device=device.text), 201)


@endpoint.bare(
    "POST",
    "/api/devices/code/",
    summary="Create a code that registers one more device, once.",
    body=spec.json_body(DeviceCodeRequest, required=False),
    answers={201: spec.json_answer(structs.Code)},
)
async def create_device_code(request: Request) -> Response:
    """With ``user``, it is for another user who has no other way in. That is possible through the
    door alone, since the user who runs the proxy can read its files.
    """
    services = services_of(request)
    await services.caller(request)
    body = await read_optional(request, DeviceCodeRequest)
    if body.user is None:
        user = (await services.proofs.demand(request, body.proof)).user
    else:
        applicant = await services.admission.applicant(request, refresh=True)
        if not applicant.door:
            raise NotAllowed(
                "a code for somebody else can only be created on the proxy's machine",
                code="proof_needed",
                hint="run ers device code --user there, as the user who runs the proxy",
            )
        user = from_text(body.user)
    if not await runtime.in_thread(services.keyrings.has, user):
        raise NotFound("that user has no keyring here", code="no_keyring")
    made = services.admission.codes.make(user)
    services.admission.enrolment.note(user, "code_made")
    return answer(structs.Code(made.text, made.seconds), 201)


@endpoint.bare(
    "DELETE",
    "/api/devices/{id}/",
    summary="Revoke a device. Revoking the caller's own device needs no proof.",
    body=spec.json_body(RevocationRequest, required=False),
    answers={204: spec.empty_answer("The device is revoked")},
)
async def revoke_device(request: Request) -> Response:
    services = services_of(request)
    await services.caller(request)
    body = await read_optional(request, RevocationRequest)
    applicant = await services.admission.applicant(request)
    named = request.path_params["id"]
    user = applicant.caller.user
    is_itself = applicant.enrolled and applicant.device is not None and applicant.device.id == named
    if not is_itself:
        user = (await services.proofs.demand(request, body.proof)).user
    await runtime.in_thread(services.admission.enrolment.revoke, user, named)
    await runtime.in_thread(services.keyrings.dismiss, user, named)
    return Response(status_code=204)


def _of_id(services: Services, user: bytes, device: str) -> DeviceRecord:
    return next(
        listed for listed in services.admission.enrolment.devices(user) if listed.id == device
    )
