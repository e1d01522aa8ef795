"""Proofs to a service of who the user is: a password, a code, the link from a message.

Commands that reveal or change keys, or enrol this machine, verify again who the user is. On the
proxy's own machine, the local-user secret is a sufficient proof. Elsewhere, the user enters the
password of the account or, if the keyring has a passphrase, the passphrase.

A new password is asked for twice, and checked immediately as far as possible without a server. The
service makes the final decision: it also knows common passwords.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import ParamSpec, Protocol, TypeVar

import msgspec

from encrypted_records import errors
from encrypted_records.cli.data_folder import SignedLink, signed_link
from encrypted_records.cli.login.keychain import DEVICE_VARIABLE
from encrypted_records.cli.login.session import NOBODY, CommandSession, Credentials, usual_device
from encrypted_records.cli.terminal import ask, day, say, warn
from encrypted_records.client.proxy.keyring import Devices, Proof
from encrypted_records.client.proxy.transport import new_device

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


async def call_with_proof(
    session: CommandSession,
    call: Callable[[Proof | None], Awaitable[T]],
    *,
    words: str | None = None,
) -> T:
    """Run ``call`` with a proof if it needs one; returns its result.

    Args:
        words: words that may be the recovery phrase of the keyring's newest version, which is a
            proof; used if there is no other proof.

    Raises:
        NotAllowed: ``proof_needed``, from a machine that is not registered; ``proof_wrong``.
        InvalidSetting: a proof is needed and was not typed.
    """
    try:
        return await call(None)
    except errors.NotAllowed as error:
        # An API that asks for a proof, of a request that is forwarded to it, would get it.
        if error.reason != "proof_needed" or error.from_api:
            raise
        devices: Devices | None = await session.client.devices()
        assert devices is not None
        keyring = devices.keyring
        if keyring is None:
            session.make_device()  # the new keyring registers it
        elif not devices.enrolled and not await session.client.has_door():
            if words is None:
                raise  # no password helps, and the hint says what does
            devices = None
        elif not (words or keyring.passphrase) and await session.reads_mirror():
            # The server knows no password.
            words = ask_secret("The 24 words of your keyring's newest version")
            devices = None
    proof = _proof(session, devices, words)
    try:
        return await call(proof)
    except errors.NotAllowed as error:
        if error.reason != "proof_code_needed":
            raise
    return await call(msgspec.structs.replace(proof, code=ask_code()))


async def with_proof(
    session: CommandSession,
    method: Callable[P, Awaitable[T]],
    *args: P.args,
    **options: P.kwargs,
) -> T:
    """The result of a method that takes a ``proof``; raises as :func:`call_with_proof`."""
    given: Callable[..., Awaitable[T]] = partial(method, *args, **options)
    return await call_with_proof(session, lambda proof: given(proof=proof))


class _TakesProof(Protocol[T_co]):
    def __call__(self, *, proof: Proof | None) -> Awaitable[T_co]: ...


class Proven:
    """Calls of a command that each need a proof: the user is asked once."""

    def __init__(self, session: CommandSession) -> None:
        self._session = session
        self._proof: Proof | None = None

    async def __call__(self, call: _TakesProof[T]) -> T:
        """Make a call; raises as :func:`call_with_proof`."""
        if self._proof is not None:
            return await call(proof=self._proof)
        return await call_with_proof(self._session, partial(self._keeping, call))

    async def _keeping(self, call: _TakesProof[T], proof: Proof | None) -> T:
        # A code is valid once: if there was a code, the next call asks for another.
        self._proof = None if proof is None or proof.code else proof
        return await call(proof=proof)


def _proof(session: CommandSession, devices: Devices | None, words: str | None) -> Proof:
    """
    Args:
        devices: None if only words are accepted.
    """
    if devices is None:
        return Proof(phrase=words)
    known = session.who.password or os.environ.get("ERS_PASSWORD")
    has_passphrase = devices.keyring is not None and devices.keyring.passphrase
    if words is not None and (has_passphrase or not known) and not sys.stdin.isatty():
        return Proof(phrase=words)  # stdin ended with them
    if has_passphrase:
        label = "Passphrase of your keyring"
        shown = ask_secret(label if words is None else f"{label}, or Enter if it is lost")
        return Proof(passphrase=shown) if shown else _or_words(words)
    shown = known or ask_secret("Your password")
    return Proof(password=shown) if shown else _or_words(words)


def _or_words(words: str | None) -> Proof:
    if words is None:
        raise errors.InvalidSetting(
            "this command gives out or changes keys, and needs a proof",
            hint="enter your password or set ERS_PASSWORD; or enter the keyring's passphrase",
        )
    return Proof(phrase=words)


class _TakesCode(Protocol[T_co]):
    def __call__(self, *, code: str = "") -> Awaitable[T_co]: ...


async def with_code(call: _TakesCode[T]) -> T:
    """Run ``call``, which checks the account's password; if the account has a second factor, ask
    for a code and run it again. Returns its result.

    Raises:
        InvalidSetting: a code is needed and was not typed.
    """
    try:
        return await call()
    except errors.ErsError as error:
        reasons = {error.reason, *(flaw.code for flaw in error.flaws)}
        if "second_factor_required" not in reasons:
            raise
    return await call(code=ask_code())


def ask_code() -> str:
    """Ask for a code of the account's second factor, as :func:`ask_secret`."""
    code = ask_secret("Code of your authenticator app, or a recovery code").strip()
    if not code:
        raise errors.InvalidSetting(
            "the account has a second factor, and its code is missing",
            hint="type it, or give it on the next line of standard input",
        )
    return code


def ask_secret(label: str) -> str:
    """Ask for a secret without echo; without a terminal, read the next line of stdin."""
    if sys.stdin.isatty():
        return ask(label, hide_input=True)
    return sys.stdin.readline().removesuffix("\n").removesuffix("\r")


def ask_password(session: CommandSession, why: str = "this command needs your password") -> str:
    """The password of the account: known, from the environment, or asked for.

    Raises:
        InvalidSetting: none was given.
    """
    known = session.who.password or os.environ.get("ERS_PASSWORD") or ask_secret("Your password")
    if not known:
        raise errors.InvalidSetting(
            why,
            hint="set ERS_PASSWORD, or give the password on the next line of standard input",
        )
    return known


DEVICE = "device"


def own_name() -> str:
    """The name of this machine in a keyring's list of devices."""
    return f"ers on {platform.node() or 'a machine'}"


async def devices_of(session: CommandSession) -> Devices:
    """The devices that may use the keyring. If this machine's device was revoked, it gets a new
    device.
    """
    try:
        return await session.client.devices()
    except errors.NotAuthenticated as error:
        told = error.from_api or error.reason != "device_unknown"
        if told or os.environ.get(DEVICE_VARIABLE):
            raise
    # It knew the device, or has the door: so this is the proxy, and the revoked device is useless.
    session.keep_device(new_device())
    return await session.client.devices()


async def register_device(session: CommandSession, name: str = "", **shown: str) -> str:
    """Register the session's device and store its secret; returns the description of the storage
    place.

    Args:
        shown: as for :meth:`DeviceCalls.add_device`; empty if the door is enough.
    """
    session.make_device()
    await session.client.add_device(name or own_name(), **shown)
    device = session.client.device
    assert device is not None
    return session.keep_device(device)


def describe(devices: Devices) -> Iterator[str]:
    """Lines by which the owner of a keyring recognises it."""
    known = devices.keyring
    if known is None:
        yield "keyring      none yet"
        return
    count = devices.count
    sealed = ", protected by a passphrase" if known.passphrase else ""
    yield f"keyring {known.fingerprint}, created {day(known.made)}{sealed}"
    yield f"devices      {count} registered" if count else "devices      none"


SHORTEST = 12
#: Maximum attempts at a terminal.
_TRIES = 5


def weakness(password: str) -> str:
    """The weakness of a password as a text; empty if only the service can tell."""
    if len(password) < SHORTEST:
        return f"the password has fewer than {SHORTEST} characters"
    if password.isdecimal():
        return "the password has digits only"
    return ""


#: Every address that the service accepts has this form.
_ADDRESS = re.compile(r".+@(\S+\.\S+|localhost|\[\S+\])")


def require_address(text: str, argument: str) -> None:
    """Check an e-mail address before the user is asked for a password.

    Args:
        argument: the argument or option that has it.

    Raises:
        InvalidSetting: the service would refuse ``text``.
    """
    if not _ADDRESS.fullmatch(text):
        raise errors.InvalidSetting(
            f"{argument}: this is not an e-mail address",
            hint=f"give an address such as ada@example.org as {argument}",
        )


async def set_password(label: str, given: str | None, use: Callable[[str], Awaitable[None]]) -> str:
    """Set a new password; returns the password.

    Args:
        given: a password that needs no question.
        use: sends it to the service. If the service finds it too weak, the user is asked for
            another.

    Raises:
        InvalidSetting: the given password is too weak.
        BadInput: the service refuses the password, or something else.
    """
    if given is not None:
        if weak := weakness(given):
            raise errors.InvalidSetting(weak, hint="nothing was changed; choose a longer one")
        await use(given)
        return given
    for left in reversed(range(_TRIES)):
        password = _ask_password(label)
        try:
            await use(password)
        except errors.BadInput as error:
            if not (left and _about_password(error)):
                raise
            warn("; ".join(flaw.detail for flaw in error.flaws))
        else:
            return password
    raise AssertionError("the last try returns or raises")


def _ask_password(label: str) -> str:
    while True:
        password = ask(label, hide_input=True)
        if weak := weakness(password):
            warn(f"{weak}: choose another one")
        elif ask("Repeat it", hide_input=True) == password:
            return password
        else:
            warn("the two entries differ")


def _about_password(error: errors.ErsError) -> bool:
    return bool(error.flaws) and all(flaw.code.startswith("password_") for flaw in error.flaws)


def answer(label: str, name: str) -> str:
    """Ask for a value on the terminal, or read the next line of stdin if there is no terminal.

    Raises:
        InvalidSetting: no value was given.
    """
    text = (ask(label) if sys.stdin.isatty() else sys.stdin.readline()).strip()
    if not text:
        raise errors.InvalidSetting(f"{name} is missing", hint="give it on standard input")
    return text


def link_in(text: str) -> SignedLink:
    """
    Raises:
        InvalidSetting: it is not the link of a message.
    """
    link = signed_link(text)
    if link is None:
        raise errors.InvalidSetting(
            "this is not a link from a message",
            hint="give the whole link in quotes: it contains user_id, timestamp and signature",
        )
    return link


def ask_link() -> SignedLink:
    """Ask for a link, or read the next line of stdin."""
    return link_in(answer("Link from the message", "the link from the message"))


async def confirm_account(
    session: CommandSession, link: SignedLink, who: Credentials = NOBODY
) -> None:
    """Confirm an account by the link of its message, and print the name of its organization.

    Args:
        who: credentials for looking up the organization; ``NOBODY`` if no password is known.

    Raises:
        BadInput: ``invalid_link``; the link is invalid, was used or has expired.
    """
    device = usual_device(session.proxy)
    async with session.proxy.client(NOBODY, device) as client:
        await client.verify_registration(
            user_id=link.user_id, timestamp=link.timestamp, signature=link.signature
        )
    say("The account is confirmed.")
    if who.password:
        # The account is confirmed, whatever happens next.
        with suppress(errors.ErsError):
            async with session.proxy.client(who, device) as client:
                async for organization in client.organizations():
                    say(f"Its organization is {organization.slug} ({organization.name}).")
    say("Log in with: ers login")
