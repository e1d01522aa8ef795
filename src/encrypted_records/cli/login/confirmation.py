"""Links from messages: what they are, and what follows when an account is confirmed by one."""

from __future__ import annotations

from contextlib import suppress

from encrypted_records.cli.login.passwords import answer
from encrypted_records.cli.login.session import NOBODY, CommandSession, Credentials, usual_device
from encrypted_records.cli.supervise.mailbox import SignedLink, signed_link
from encrypted_records.cli.terminal import say
from encrypted_records.errors import ErsError, InvalidSetting


def link_in(text: str) -> SignedLink:
    """
    Raises:
        InvalidSetting: it is no link of a message.
    """
    link = signed_link(text)
    if link is None:
        raise InvalidSetting(
            "this is not a link from a message",
            hint="give the whole link in quotes: it contains user_id, timestamp and signature",
        )
    return link


def ask_link() -> SignedLink:
    """A link that is asked for, or the next line of stdin."""
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
        # It is confirmed, whatever comes of this.
        with suppress(ErsError):
            async with session.proxy.client(who, device) as client:
                async for organization in client.listing("organizations"):
                    say(f"Its organization is {organization['slug']} ({organization['name']}).")
    say("Log in with: ers login")
