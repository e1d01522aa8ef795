"""Errors in the words of the pages: what happened, and the page that helps, instead of a command.

An error's own message is shown where nothing is said of it here. Its code is in the page in any
case, behind "Details", so that it can be looked up in docs/errors.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from encrypted_records.errors import ErsError, Flaw


@dataclass(frozen=True, slots=True)
class Said:
    """The text of an error on a page.

    Attributes:
        text: what happened, in sentences.
        hint: what to do, in sentences; may be empty.
        path: a page that helps, with ``label``; empty if there is no such page.
        unlocks: whether typing the keyring's passphrase here helps.
    """

    text: str
    hint: str = ""
    path: str = ""
    label: str = ""
    unlocks: bool = False


_KEYRING = ("/keyring/", "Go to the keyring")
_SAID = {
    "keyring_locked": Said("The keyring is locked.", "", *_KEYRING, unlocks=True),
    "csrf_failed": Said(
        "You have logged in again since this page was loaded, so nothing was changed.",
        "Load the page again, then send the form again.",
    ),
    "invalid_idempotency_key": Said(
        "This form was loaded more than a day ago, so nothing was stored.",
        "Look whether the record is there already; if it is not, store it again.",
    ),
    "device_needed": Said(
        "This browser was not let in yet, so the keyring does not open for it.",
        "A code lets it in.",
        "/device/",
        "Let this browser in",
    ),
    "key_missing": Said(
        "These records are sealed with a key that is not in your keyring here.",
        "Ask somebody who has it for a backup of the keyring, and bring it here.",
        *_KEYRING,
    ),
    "no_keyring": Said("You have no keyring here yet.", "", *_KEYRING),
    "invalid_backup": Said(
        "That is no backup of a keyring, or not its passphrase.",
        "Take the file that was downloaded here, and the passphrase that you chose for it.",
    ),
    "log_broken": Said(
        "What the server has of this schema does not fit together, so that no answer can be"
        " trusted.",
        "Nothing of it is shown. Ask the operator of the server to restore its newest backup.",
    ),
    "not_admitted": Said(
        "You are not in the signed list of this organization.",
        "Were you invited? Open the invitation and enter its twelve words; you are let in when an"
        " owner's proxy has seen your answer.",
        "/organizations/",
        "Look for an invitation",
    ),
    "roster_missing": Said(
        "The organization has records, and the server shows no signed list of its people.",
        "If something was shared in it before, the list is hidden: ask the operator of the server"
        " to restore its newest backup. If nothing was, only a new organization can be shared.",
    ),
    "owners_have_all": Said(
        "Owners read and write every dataset.", "Make the owner a member first."
    ),
    "proof_wrong": Said("The proof is wrong.", "Type it again; each wrong one makes you wait."),
    "api_unreachable": Said(
        "The API does not answer.",
        "Nothing was changed. It is asked again with the next click.",
    ),
    "api_timeout": Said("The API takes too long to answer.", "Try again in a moment."),
}


def said_of(error: ErsError) -> Said:
    if error.reason == "keyring_locked" and "does not open under" in error.message:
        return Said("The keyring does not open under this passphrase.", "Type it again.")
    # One that is sealed with something of the machine's is not opened by typing.
    if error.reason in _SAID and "is not here" not in error.message:
        return _SAID[error.reason]
    return Said(_sentence(error.message), _sentence(error.hint))


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}." if text else ""


def flaws_of(error: ErsError | None, field: str) -> list[Flaw]:
    """The errors of one field of a form."""
    if error is None:
        return []
    return [flaw for flaw in error.flaws if (flaw.pointer or "").strip("/") == field]
