"""New passwords: asked for twice, and checked at once as far as no server is needed.

The service decides in the end: it also knows which passwords are common.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable

from encrypted_records.cli.terminal import ask, warn
from encrypted_records.errors import BadInput, ErsError, InvalidSetting

SHORTEST = 12
#: How often somebody at a terminal may try another one.
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
        given: one that needs no question.
        use: sends it to the service. Where that finds it too weak, a person is asked for another.

    Raises:
        InvalidSetting: the one that was given is too weak.
        BadInput: the service refuses it, or something else.
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
