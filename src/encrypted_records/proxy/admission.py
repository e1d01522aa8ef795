"""Admission: from a request to the ``Holder`` whose keyring it may use.

The API identifies the caller. Only this module decides whether that person's keys are used for a
request: by the level of this proxy (``keyrings.holder``), by the devices that are registered with
it (``keyrings.devices``), and, if keys are revealed or changed, by a proof in the same request.
Only this module makes a ``Holder``, and keyrings open for nothing else.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import threading
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from starlette.requests import HTTPConnection

from encrypted_records import runtime
from encrypted_records.client.api import Api
from encrypted_records.client.proxy.keyring import Proof
from encrypted_records.crypto.recovery import Passphrase
from encrypted_records.errors import Closed, ErsError, InvalidQuery, NotAllowed, NotAuthenticated
from encrypted_records.model import ids
from encrypted_records.model.credentials import (
    CHALLENGE_HEADER,
    DEVICE_HEADER,
    DOOR,
    DOOR_HEADER,
    BearerToken,
    DeviceSecret,
    api_token_of,
    challenge_answer,
    generate_device_secret,
    is_nonce,
    parse_device_secret,
)
from encrypted_records.model.forwarded import SESSION
from encrypted_records.proxy import disk as durable
from encrypted_records.proxy.auth import Access, Caller, RequestCredentials, credentials_of, plain
from encrypted_records.proxy.keyrings.devices import (
    Enrolment,
    another_user,
    needed_device,
    unknown_device,
)
from encrypted_records.proxy.keyrings.holder import Attempts, Holder, Level
from encrypted_records.proxy.keyrings.store import Keyrings
from encrypted_records.proxy.process import deriving

T = TypeVar("T")

#: Scope key under which the middleware of the pages puts the device of their cookie.
SCOPE_DEVICE = "ers.device"


@dataclass(frozen=True, slots=True)
class Applicant:
    """An authenticated user, and the other evidence in the request.

    Attributes:
        device: the device of the request, registered or not.
        enrolled: whether the device belongs to this user's keyring.
        door: whether the request has the local-user secret.
    """

    caller: Caller
    device: DeviceSecret | None
    enrolled: bool
    door: bool
    address: str

    @property
    def counted(self) -> bytes:
        """The key under which wrong proofs are counted: an enrolled device, or all strangers
        together.
        """
        return self.device.id.encode() if self.device is not None and self.enrolled else b""

    @property
    def holder(self) -> Holder:
        """The holder for a keyring or device that this request makes or registers."""
        known = self.device.id if self.device is not None and self.enrolled else None
        newcomer = None if self.enrolled else self.device
        caller = self.caller
        return Holder(caller.user, caller.auth, known, newcomer, self.address, token=caller.token)


class Admission:
    """Attributes:
    enrolment: the devices of each keyring.
    codes: codes with which an enrolled device enrols another device.
    """

    def __init__(
        self, access: Access, keyrings: Keyrings, enrolment: Enrolment, door: Door
    ) -> None:
        self._access = access
        self._keyrings = keyrings
        self._door = door
        self.enrolment = enrolment
        self.codes = Codes()
        #: Answers challenges for unknown devices, so that an answer does not show whether a device
        #: is known.
        self._nobody = runtime.random_bytes(32)

    @property
    def over_mirror(self) -> bool:
        """Whether the proxy reads from a mirror, which knows no logins."""
        return self._access.over_mirror

    async def holder(self, connection: HTTPConnection) -> Holder:
        """The holder who may use their keyring for this request.

        Raises:
            NotAuthenticated: the API does not know the caller; ``device_needed``,
                ``device_unknown``.
            NotAllowed: ``another_user``; a change by session without the CSRF token.
        """
        if self._access.over_mirror:
            return self._over_mirror(connection)
        credentials = credentials_of(connection)
        if credentials.service is not None:
            # A service's secret key is its keyring, so it needs no keyring here.
            caller = await self._access.caller(credentials)
            return Holder(
                caller.user, caller.auth, address=_address_of(connection), service=caller.service
            )
        device = _device_of(connection, credentials.device)
        by_device = self.enrolment.policy.level is Level.DEVICE
        if by_device:
            if device is None:
                raise needed_device()
            # Refused before a request to the API, which learns nothing about failed attempts.
            self.enrolment.owner_of(device)
        caller = await self._access.caller(credentials)
        user = caller.user
        has_keyring = self._keyrings.is_open(user) or await runtime.in_thread(
            self._keyrings.has, user
        )
        if not has_keyring and self._keyrings.is_for_another(user):
            raise another_user()
        by_device = by_device or (has_keyring and await self._is_own(user))
        if not by_device:
            return self._at_level_api(connection, caller, device, has_keyring=has_keyring)
        if device is None:
            self.enrolment.note(user, "refused", detail="device_needed")
            raise needed_device()
        owner = self.enrolment.owner_of(device)
        if owner == user:
            self.enrolment.use(device.id)
            return _hold(caller, device.id, None, connection)
        if owner is not None or has_keyring:
            self.enrolment.note(user, "refused", detail="device_unknown")
            raise unknown_device()
        return _hold(caller, None, device, connection)

    def _over_mirror(self, connection: HTTPConnection) -> Holder:
        """The holder, identified by its registered device: a mirror does not identify users.

        A browser also needs a session, which a logout removes from its cookie. This proxy cannot
        know whether the session is still valid.

        Raises:
            NotAuthenticated: ``device_needed``, ``device_unknown``; an API token, because its
                limits and expiry are unknown here; a browser that was logged out.
        """
        credentials: RequestCredentials | None = None
        with suppress(NotAuthenticated):  # a device identifies its user
            credentials = credentials_of(connection)
        if credentials is not None and (service := credentials.service) is not None:
            caller = self._access.known_here(service.id, service)
            address = _address_of(connection)
            return Holder(caller.user, caller.auth, address=address, service=service)
        if api_token_of(connection.headers.get("authorization", "")) is not None:
            raise NotAuthenticated(
                "API tokens do not work over a mirror, which does not know their limits",
                code="bad_token",
                hint="leave the token out and use a registered device, or use the secret key of a"
                " service",
            )
        device = _device_of(connection, None if credentials is None else credentials.device)
        if device is None:
            raise needed_device()
        _refuse_logged_out(connection, device)
        owner = self.enrolment.owner_of(device)
        if owner is None:
            raise unknown_device()
        self.enrolment.use(device.id)
        return _hold(self._access.known_here(owner), device.id, None, connection)

    async def readmit(self, user: bytes, token: BearerToken, device: str | None) -> Holder:
        """The holder for work that continues without a request, with an API token that a request
        has left for it.

        Args:
            device: the id of the enrolled device that sent the request; None without a device.

        Raises:
            NotAuthenticated: ``bad_token``; the token is not the user's, or has ended.
                ``device_unknown``: the device was revoked. ``device_needed``.
        """
        if device is None:
            if self.enrolment.policy.level is Level.DEVICE or await self._is_own(user):
                raise needed_device()
        elif all(known.id != device for known in self.enrolment.devices(user)):
            raise unknown_device()
        caller = await self._access.caller(RequestCredentials("bearer", token.text))
        if caller.user != user:
            raise NotAuthenticated("the API token belongs to another user", code="bad_token")
        return Holder(user, caller.auth, device, token=token)

    def _at_level_api(
        self,
        connection: HTTPConnection,
        caller: Caller,
        device: DeviceSecret | None,
        *,
        has_keyring: bool,
    ) -> Holder:
        """Authentication by the API suffices. A device is still recognized, and a new keyring
        registers it.
        """
        owner: bytes | None = b""
        if device is not None:
            with suppress(NotAuthenticated):
                owner = self.enrolment.owner_of(device)
            if owner == caller.user:
                self.enrolment.use(device.id)
                return _hold(caller, device.id, None, connection)
        newcomer = device if owner is None and not has_keyring else None
        return _hold(caller, None, newcomer, connection)

    async def _is_own(self, user: bytes) -> bool:
        known = self._keyrings.own_if_known(user)
        return await runtime.in_thread(self._keyrings.is_own, user) if known is None else known

    async def applicant(
        self, connection: HTTPConnection, *, refresh: bool = False, user: bytes | None = None
    ) -> Applicant:
        """The applicant, with the evidence of the request; an applicant alone opens nothing.

        Args:
            refresh: ask the API now for the user.
            user: over a mirror, the user whom the request has proven to be by keys.

        Raises:
            NotAuthenticated: the API does not know the caller; ``device_unknown``: the device was
                revoked or belongs to another user, or its secret is wrong; ``device_needed``, over
                a mirror.
            NotAllowed: ``another_user``; ``token_limited``; a change by session without the CSRF
                token.
        """
        device = self.device_of_person(connection)
        owner = None if device is None else self.enrolment.owner_of(device)
        if self._access.over_mirror:
            user = user or owner
            if user is None:
                raise needed_device() if device is None else unknown_device()
            caller = self._access.known_here(user)
        else:
            caller = await self._access.caller(credentials_of(connection), refresh=refresh)
        if self._keyrings.is_for_another(caller.user):
            raise another_user()
        door = self._door.is_shown_by(parse_device_secret(connection.headers.get(DOOR_HEADER, "")))
        enrolled = owner is not None and owner == caller.user
        if owner is not None and not enrolled:
            raise unknown_device()
        return Applicant(caller, device, enrolled, door, _address_of(connection))

    def device_of_person(self, connection: HTTPConnection) -> DeviceSecret | None:
        """The device of a request by a person. Over a mirror, a request needs no login.

        Raises:
            NotAuthenticated: there are no credentials, or the browser is logged out.
            NotAllowed: ``token_limited``; it comes from a program.
        """
        try:
            credentials = credentials_of(connection)
        except NotAuthenticated:
            if not self._access.over_mirror:
                raise
            device = _device_of(connection, None)
            _refuse_logged_out(connection, device)
            return device
        if credentials.token is not None or credentials.service is not None:
            raise NotAllowed(
                "API tokens and services cannot show or change keys or devices",
                code="token_limited",
                hint="log in, and do this as yourself",
            )
        return _device_of(connection, credentials.device)

    async def until_revoked(
        self, holder: Holder, items: AsyncGenerator[T, None]
    ) -> AsyncGenerator[T, None]:
        """``items``, until the device that requested them is revoked. They are closed with this
        iterator.

        Raises:
            NotAuthenticated: ``device_unknown``; the device was revoked.
        """
        with self.enrolment.watch(holder.device) as revoked:
            async with aclosing(items):
                async for item in items:
                    if revoked.is_set():
                        raise unknown_device()
                    yield item

    def answer_to(self, headers: Mapping[str, str]) -> str | None:
        """The answer to a client that checks whether this is its proxy.

        Raises:
            InvalidQuery: the challenge is malformed.
        """
        challenge = headers.get(CHALLENGE_HEADER)
        if challenge is None:
            return None
        name, dot, nonce = challenge.partition(".")
        if not dot or not is_nonce(nonce):
            raise InvalidQuery(
                f"{CHALLENGE_HEADER} must be the id of a device, a dot, and 16"
                " to 64 letters, digits, hyphens or underscores"
            )
        known = self._door.digest if name == DOOR else self.enrolment.digest_of(name)
        return challenge_answer(known or self._nobody, nonce, headers.get("host", ""))


def _device_of(
    connection: HTTPConnection, after_password: DeviceSecret | None
) -> DeviceSecret | None:
    """The device that a request shows: in its header, in the cookie of a page, or in Basic.

    Raises:
        NotAuthenticated: ``device_unknown``; the header does not hold a device secret.
    """
    text = connection.headers.get(DEVICE_HEADER)
    if text is not None:
        shown = parse_device_secret(text.strip())
        if shown is None:
            raise unknown_device()
        return shown
    page: DeviceSecret | None = connection.scope.get(SCOPE_DEVICE)
    return page or after_password


def _refuse_logged_out(connection: HTTPConnection, device: DeviceSecret | None) -> None:
    """Over a mirror, a browser keeps its device after a logout.

    Raises:
        NotAuthenticated: the browser is logged out.
    """
    by_cookie = device is not None and device is connection.scope.get(SCOPE_DEVICE)
    if by_cookie and not plain(connection.cookies.get(SESSION)):
        raise NotAuthenticated(
            "this browser is logged out, and a mirror has no passwords to log in with",
            hint="register it again with a code from a registered device, or the words of your"
            " keyring",
        )


def _hold(
    caller: Caller, device: str | None, newcomer: DeviceSecret | None, connection: HTTPConnection
) -> Holder:
    address = _address_of(connection)
    return Holder(caller.user, caller.auth, device, newcomer, address, token=caller.token)


def _address_of(connection: HTTPConnection) -> str:
    return connection.client.host if connection.client is not None else ""


def _refuse_stranger(applicant: Applicant) -> None:
    """
    Raises:
        NotAllowed: ``proof_needed``; the request comes neither from an enrolled device nor through
            the door.
    """
    if not (applicant.enrolled or applicant.door):
        raise NotAllowed(
            "this request does not come from a device that is registered here",
            code="proof_needed",
            hint="use ers on the proxy's machine, a registered device, or the words of the"
            " keyring's newest version as proof",
        )


# Codes with which a registered device registers another: typed by hand, used once, valid for
# minutes. They are kept only in memory and end with the proxy. A code is bound to a keyring, so
# that an API that names another user cannot register a device for that user.

#: Without I, L, O and U, which are read as something else (Crockford's base32).
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_READ_AS = str.maketrans("ILO", "110")
_CODE_CHARACTERS = 8
_CODE_SECONDS = 600
_CODE_TRIES = 5


@dataclass(slots=True)
class _IssuedCode:
    digest: bytes = field(repr=False)
    until: float
    wrong: int = 0


@dataclass(frozen=True, slots=True)
class NewCode:
    """``text`` is shown once, as ``ABCD-EFGH``."""

    text: str = field(repr=False)
    seconds: int


class Codes:
    """Device codes, one for each keyring; a new code replaces the previous one. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = runtime.monotonic) -> None:
        self._clock = clock
        self._codes: dict[bytes, _IssuedCode] = {}
        self._lock = threading.Lock()

    def make(self, user: bytes) -> NewCode:
        text = "".join(runtime.chance.choice(_ALPHABET) for _ in range(_CODE_CHARACTERS))
        with self._lock:
            self._codes[user] = _IssuedCode(_digest(user, text), self._clock() + _CODE_SECONDS)
        return NewCode(f"{text[:4]}-{text[4:]}", _CODE_SECONDS)

    def user_of(self, typed: str) -> bytes | None:
        """The user whose code this is; None if there is none. The caller limits the attempts."""
        text = _plain(typed)
        with self._lock:
            for user, code in self._codes.items():
                if hmac.compare_digest(code.digest, _digest(user, text)):
                    return user
        return None

    def use(self, user: bytes, typed: str) -> None:
        """Use up the code of the user's keyring.

        Raises:
            NotAllowed: ``code_wrong``; the code is wrong, used or expired, or was tried too often.
        """
        text = _plain(typed)
        with self._lock:
            code = self._codes.get(user)
            if code is not None and code.until > self._clock():
                if hmac.compare_digest(code.digest, _digest(user, text)):
                    del self._codes[user]
                    return
                code.wrong += 1
                if code.wrong < _CODE_TRIES:
                    raise wrong_code()
            self._codes.pop(user, None)
        raise wrong_code()


def _plain(typed: str) -> str:
    return typed.upper().translate(_READ_AS).replace("-", "").replace(" ", "")


def _digest(user: bytes, text: str) -> bytes:
    return hashlib.sha256(user + text[: 4 * _CODE_CHARACTERS].encode()).digest()


def wrong_code() -> NotAllowed:
    return NotAllowed(
        "the code is wrong or no longer valid",
        code="code_wrong",
        hint="create one on a registered device, with ers device code or on the page /keyring/;"
        f" it is valid for {math.ceil(_CODE_SECONDS / 60)} minutes, once, and {_CODE_TRIES} tries",
    )


class Door:
    """The local-user secret: in a file that only the operating system's user who runs the proxy can
    read; this user can read every other file of the proxy as well. It is made at each start.

    Args:
        path: where ``ers`` looks for it; None if there is no door.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._secret = generate_device_secret(DOOR)
        if path is not None:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            durable.replace(path, self._secret.text.encode("ascii"))

    @property
    def digest(self) -> bytes:
        return self._secret.digest

    def is_shown_by(self, shown: DeviceSecret | None) -> bool:
        """Whether ``shown`` is the secret of this door."""
        if shown is None or self._path is None:
            return False
        return hmac.compare_digest(shown.digest, self._secret.digest)

    def close(self) -> None:
        """Remove the file, if it still belongs to this door."""
        if self._path is None:
            return
        with suppress(OSError):
            if self._path.read_bytes() == self._secret.text.encode("ascii"):
                self._path.unlink()


# Fresh proofs for requests that reveal or change keys. Such a request itself contains the proof, at
# every level, and the proof is never remembered. Checked in this order:
#
# 1. *from where*: a device that is enrolled for this keyring, or the door;
# 2. *who*: the passphrase, and nothing else, if the keyring has its user's own passphrase;
#    otherwise the door, or the account's password, which the API checks again.
#
# The words of the newest version replace both: a user who has them has the keys.

#: Stands for the user's id if the user is not identified yet.
NOBODY = bytes(ids.ID_BYTES)


class Proofs:
    def __init__(self, api: Api, admission: Admission, keyrings: Keyrings) -> None:
        self._api = api
        self._admission = admission
        self._keyrings = keyrings
        self.attempts = Attempts("too many wrong proofs")

    async def demand(self, connection: HTTPConnection, proof: Proof | None) -> Holder:
        """The holder whose keys this request may reveal or change.

        If the user has no keyring here, the request's device is registered with the new keyring,
        and only the account's password or the door is required.

        Raises:
            NotAuthenticated, NotAllowed: as :meth:`Admission.applicant`; ``proof_needed``, which
                says what is missing; ``proof_code_needed``, in addition to the password;
                ``proof_wrong``.
            Throttled: too soon after a wrong proof.
            Closed: ``keyring_locked``, for a passphrase that does not open the keyring.
        """
        applicant = await self._admission.applicant(connection, refresh=True)
        return await self.check(applicant, proof)

    async def check(self, applicant: Applicant, proof: Proof | None) -> Holder:
        """Like :meth:`demand`, for a request whose applicant is known."""
        proof = proof or Proof()
        user = applicant.caller.user
        has_keyring = await runtime.in_thread(self._keyrings.has, user)
        if proof.phrase is not None and has_keyring:
            await self.words(applicant, proof.phrase)
            return replace(applicant.holder, newcomer=None)
        if has_keyring or applicant.device is None:
            _refuse_stranger(applicant)
        if await runtime.in_thread(self._keyrings.is_own, user):
            if proof.passphrase is None:
                raise _needed("the keyring's passphrase")
            await self._passphrase(applicant, proof.passphrase)
        elif not applicant.door:
            if self._admission.over_mirror:
                raise _needed("the words of the keyring's newest version")
            if proof.password is None:
                raise _needed("the password of the account")
            await self._password(applicant, proof.password, proof.code or "")
        return replace(applicant.holder, newcomer=None) if has_keyring else applicant.holder

    async def words(self, applicant: Applicant, phrase: str) -> None:
        """
        Raises:
            NotAllowed: ``proof_wrong``; not the words of the newest version.
            Throttled: too soon after a wrong proof.
        """
        user = applicant.caller.user
        name = user + applicant.counted
        self.attempts.check(name)
        if not await runtime.in_thread(self._keyrings.knows_words, user, phrase):
            raise self._wrong(applicant, name, "words")
        self.attempts.right(name)

    async def _passphrase(self, applicant: Applicant, text: str) -> None:
        user = applicant.caller.user
        try:
            await deriving(
                self._keyrings.check_passphrase,
                user,
                Passphrase(text),
                counted=applicant.counted,
            )
        except Closed as error:
            if error.reason == "keyring_locked":
                self._note(applicant, "passphrase")
            raise

    async def _password(self, applicant: Applicant, password: str, code: str) -> None:
        """Have the API check again whether this is the account's password."""
        user = applicant.caller.user
        name = user + applicant.counted
        self.attempts.check(name)
        # Counted before the check, so that many concurrent attempts are not all checked.
        self.attempts.wrong(name)
        try:
            email = await self._api.email(applicant.caller.auth)
            token = await self._api.access_token(email, password, code)
            auth = f"Bearer {token}"
            same = ids.from_text(await self._api.user_id(auth)) == user
            await self._api.end_login(auth)
        except NotAuthenticated as error:
            if error.reason == "second_factor_required":
                self.attempts.right(name)
                raise _needed(
                    "a code of the account's second factor", "proof_code_needed"
                ) from None
            same = False
        except ErsError:
            # The API gave no answer, so this is not an attempt. Guessing this way needs an API that
            # helps, and such an API learns each password anyway.
            self.attempts.right(name)
            raise
        if not same:
            self._note(applicant, "password")
            raise wrong_proof()
        self.attempts.right(name)

    def _wrong(self, applicant: Applicant, name: bytes, kind: str) -> NotAllowed:
        self.attempts.wrong(name)
        self._note(applicant, kind)
        return wrong_proof()

    def _note(self, applicant: Applicant, kind: str) -> None:
        device = applicant.holder.device
        self._admission.enrolment.note(applicant.caller.user, "refused", device, kind)


def _needed(proof: str, code: str = "proof_needed") -> NotAllowed:
    return NotAllowed(
        f"this shows or changes keys, and needs {proof} in the same request",
        code=code,
        hint='send it in the member "proof" of the body, as docs/http-api.md says',
    )


def wrong_proof() -> NotAllowed:
    return NotAllowed(
        "the proof is wrong",
        code="proof_wrong",
        hint="enter it again; each wrong proof makes the next wait longer",
    )
