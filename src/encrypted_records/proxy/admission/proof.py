"""Fresh proofs: requests that reveal or change keys need one.

Asked for in the very request, at every level, and never remembered. Checked in this order:

1. *from where*: a device that is enrolled for this keyring, or the door;
2. *who*: the passphrase, where the keyring has one of its user's own, and then nothing else; else
   the door, or the account's password, which the API checks again.

The words of the newest version replace both: a user who has them has the keys.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
from starlette.requests import HTTPConnection

from encrypted_records import runtime
from encrypted_records.client.api import Api
from encrypted_records.crypto.recovery import Passphrase
from encrypted_records.errors import Closed, ErsError, NotAllowed, NotAuthenticated
from encrypted_records.model import ids
from encrypted_records.proxy.admission.admission import Admission, Applicant, refuse_stranger
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.keyrings.policy import Attempts
from encrypted_records.proxy.keyrings.store import Keyrings
from encrypted_records.proxy.process.offload import deriving

#: In place of a user's id, for those who have not shown yet who they are.
NOBODY = bytes(ids.ID_BYTES)


class GivenProof(msgspec.Struct, forbid_unknown_fields=True):
    """A password, with a code where the account has a second factor; or one of the other two. None
    of them may print."""

    password: str | None = None
    code: str | None = None
    passphrase: str | None = None
    phrase: str | None = None

    def __repr__(self) -> str:
        return "<proof>"


class Proofs:
    def __init__(self, api: Api, admission: Admission, keyrings: Keyrings) -> None:
        self._api = api
        self._admission = admission
        self._keyrings = keyrings
        self.attempts = Attempts("too many wrong proofs")

    async def demand(self, connection: HTTPConnection, proof: GivenProof | None) -> Holder:
        """The holder who may have keys given out or changed by this request.

        Where the user has no keyring here, the device of the request is the one that is taken in
        with the keyring that is made, and the account's password or the door is asked for alone.

        Raises:
            NotAuthenticated, NotAllowed: as :meth:`Admission.applicant`; ``proof_needed``, which
                says what is missing; ``proof_code_needed``, beside the password; ``proof_wrong``.
            Throttled: too soon after a wrong proof.
            Closed: ``keyring_locked``, for a passphrase that does not open the keyring.
        """
        applicant = await self._admission.applicant(connection, refresh=True)
        return await self.check(applicant, proof)

    async def check(self, applicant: Applicant, proof: GivenProof | None) -> Holder:
        """As :meth:`demand`, for a request whose applicant is known."""
        proof = proof or GivenProof()
        user = applicant.caller.user
        here = await runtime.in_thread(self._keyrings.has, user)
        if proof.phrase is not None and here:
            await self.words(applicant, proof.phrase)
            return replace(applicant.holder, newcomer=None)
        if here or applicant.device is None:
            refuse_stranger(applicant)
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
        return replace(applicant.holder, newcomer=None) if here else applicant.holder

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
        """Ask the API again whether this is the account's password."""
        user = applicant.caller.user
        name = user + applicant.counted
        self.attempts.check(name)
        # Counted before it is known to be wrong, so that many at once are not all looked at.
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
            # Not answered, so not tried. To guess behind that takes an API which helps, and such an
            # API learns each password as it comes.
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


def _needed(what: str, code: str = "proof_needed") -> NotAllowed:
    return NotAllowed(
        f"this shows or changes keys, and needs {what} in the same request",
        code=code,
        hint='send it in the member "proof" of the body, as docs/http-api.md says',
    )


def wrong_proof() -> NotAllowed:
    return NotAllowed(
        "the proof is wrong",
        code="proof_wrong",
        hint="enter it again; each wrong proof makes the next wait longer",
    )
