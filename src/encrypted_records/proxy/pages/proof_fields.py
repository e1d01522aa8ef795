"""The proof that a form asks for where it gives keys out or changes them: typed each time."""

from __future__ import annotations

from encrypted_records.proxy.pages.page import Visit


def proof_of(visit: Visit) -> dict[str, str] | None:
    """The proof in a form: the account's password, with a code of its second factor if it has one;
    or the passphrase.
    """
    typed = {name: visit.text(f"proof-{name}") for name in ("password", "code", "passphrase")}
    return {name: value for name, value in typed.items() if value} or None
