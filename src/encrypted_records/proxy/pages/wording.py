"""Errors in the words of the pages: what happened, and the page that helps, instead of a command.

An error's own message is shown where nothing is said of it here. Its code is in the page in any
case, behind "Details", so that it can be looked up in docs/errors.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from encrypted_records.errors import ErsError, Flaw


@dataclass(frozen=True, slots=True)
class ErrorText:
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
    "keyring_locked": ErrorText("The keyring is locked.", "", *_KEYRING, unlocks=True),
    "csrf_failed": ErrorText(
        "You have logged in again since this page was loaded, so nothing was changed.",
        "Load the page again, then send the form again.",
    ),
    "invalid_idempotency_key": ErrorText(
        "This form was loaded more than a day ago, so nothing was stored.",
        "Check whether the record is already stored; if it is not, store it again.",
    ),
    "device_needed": ErrorText(
        "This browser is not registered, so it cannot use the keyring.",
        "Register it with a code.",
        "/device/",
        "Register this browser",
    ),
    "key_missing": ErrorText(
        "These records are encrypted with a key that is not in your keyring here.",
        "Ask somebody who has it for a backup of the keyring, and restore it here.",
        *_KEYRING,
    ),
    "no_keyring": ErrorText("You have no keyring here yet.", "", *_KEYRING),
    "invalid_backup": ErrorText(
        "This is not a backup of a keyring, or the passphrase is wrong.",
        "Choose a file that was downloaded here, and enter the passphrase that you chose for it.",
    ),
    "log_broken": ErrorText(
        "The server's data of this schema is inconsistent, so no answer can be trusted.",
        "None of it is shown. Ask the operator of the server to restore the newest backup.",
    ),
    "not_admitted": ErrorText(
        "You are not in the signed member list of this organization.",
        "If you were invited, open the invitation and enter its twelve words; an owner's"
        " proxy then admits you.",
        "/organizations/",
        "Look for an invitation",
    ),
    "roster_missing": ErrorText(
        "The organization has records, but the server shows no signed member list.",
        "If something was shared before, the list is hidden: ask the operator of the server"
        " to restore the newest backup. If nothing was shared, sharing is only possible in a"
        " new organization.",
    ),
    "owners_have_all": ErrorText(
        "Owners read and write every dataset.", "Change the owner to a member first."
    ),
    "proof_wrong": ErrorText(
        "The proof is wrong.", "Enter it again; each wrong proof makes the next wait longer."
    ),
    "api_unreachable": ErrorText(
        "The API does not answer.",
        "Try again in a moment.",
    ),
    "api_timeout": ErrorText("The API takes too long to answer.", "Try again in a moment."),
}


#: Parts of messages that say more than the text of their code: a key of the machine's that is not
#: opened by typing, and a backup that opens without all that the keyring has.
_OWN_WORDS = ("is not here", "the backup opens, but")


def said_of(error: ErsError) -> ErrorText:
    if error.reason == "keyring_locked" and "cannot be decrypted with" in error.message:
        return ErrorText("The keyring cannot be unlocked with this passphrase.", "Enter it again.")
    if error.reason in _SAID and not any(own in error.message for own in _OWN_WORDS):
        return _SAID[error.reason]
    return ErrorText(_sentence(error.message), _sentence(error.hint))


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}." if text else ""


def flaws_of(error: ErsError | None, field: str) -> list[Flaw]:
    """The errors of one field of a form."""
    if error is None:
        return []
    return [flaw for flaw in error.flaws if (flaw.pointer or "").strip("/") == field]
