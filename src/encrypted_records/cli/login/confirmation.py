"""Confirming an account: a new password, and the link from a message.

A password is asked for twice, and checked immediately as far as possible without a server. The
service makes the final decision: it also knows common passwords.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress

from encrypted_records.cli.login.session import NOBODY, CommandSession, Credentials, usual_device
from encrypted_records.cli.supervise.mailbox import SignedLink, signed_link
from encrypted_records.cli.terminal import ask, say, warn
from encrypted_records.errors import BadInput, ErsError, InvalidSetting

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
            raise InvalidSetting(weak, hint="nothing was changed; choose a longer one")
        await use(given)
        return given
    for left in reversed(range(_TRIES)):
        password = _ask(label)
        try:
            await use(password)
        except BadInput as error:
            if not (left and _about_password(error)):
                raise
            warn("; ".join(flaw.detail for flaw in error.flaws))
        else:
            return password
    raise AssertionError("the last try returns or raises")


def _ask(label: str) -> str:
    while True:
        password = ask(label, hide_input=True)
        if weak := weakness(password):
            warn(f"{weak}: choose another one")
        elif ask("Repeat it", hide_input=True) == password:
            return password
        else:
            warn("the two entries differ")


def _about_password(error: ErsError) -> bool:
    return bool(error.flaws) and all(flaw.code.startswith("password_") for flaw in error.flaws)


def answer(label: str, what: str) -> str:
    """Ask for a value on the terminal, or read the next line of stdin if there is no terminal.

    Raises:
        InvalidSetting: no value was given.
    """
    text = (ask(label) if sys.stdin.isatty() else sys.stdin.readline()).strip()
    if not text:
        raise InvalidSetting(f"{what} is missing", hint="give it on standard input")
    return text


def link_in(text: str) -> SignedLink:
    """
    Raises:
        InvalidSetting: it is not the link of a message.
    """
    link = signed_link(text)
    if link is None:
        raise InvalidSetting(
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
        with suppress(ErsError):
            async with session.proxy.client(who, device) as client:
                async for organization in client.listing("organizations"):
                    say(f"Its organization is {organization['slug']} ({organization['name']}).")
    say("Log in with: ers login")
