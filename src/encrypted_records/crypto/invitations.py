"""The secret of an invitation: twelve words that authenticate both sides to one another.

Under them the inviter shows the invited which roster is theirs (``check``), and the invited shows
the owners whose keys theirs are (the answer). The API never has the words, and its mail does not
either (docs/SPEC.md, section 15.6).
"""

from __future__ import annotations

from typing import Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from encrypted_records import runtime
from encrypted_records.crypto import format as fmt
from encrypted_records.crypto.identity import Signer
from encrypted_records.crypto.keys import Mac, Secret
from encrypted_records.crypto.recovery import secret_of, words_of
from encrypted_records.errors import InvitationWords
from encrypted_records.model import roster
from encrypted_records.model.roster import Answer, Invite


class CheckKey(Mac):
    """Shows that who wrote an invitation had its words, and saw the roster that stands before."""


class _Pair(Secret):
    """P: what both keys of an invitation follow from."""

    def answer(self) -> Signer:
        return Signer(self._derive(fmt.ANSWER))

    def check(self) -> CheckKey:
        return CheckKey(self._derive(fmt.CHECK))


class InvitationKeys:
    """Keys that follow from the words, for one invitation of one organization."""

    def __init__(self, pair: _Pair) -> None:
        self._answer: Final = pair.answer()
        self._check: Final = pair.check()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    @property
    def answer_key(self) -> bytes:
        """The public key that answers are verified with, 32 bytes."""
        return self._answer.public

    def compute_check(self, previous: bytes, invite: Invite[str]) -> bytes:
        """``check`` of an invitation, whatever it has there now.

        Args:
            previous: the digest of the entry before the invitation's.
        """
        return self._check.compute(roster.checked_by_words(previous, invite))

    def verify(self, previous: bytes, invite: Invite[str]) -> None:
        """Make sure that who has these words wrote the invitation, behind this roster.

        Raises:
            InvitationWords: the words are others, or the roster is another.
        """
        checked = roster.checked_by_words(previous, invite)
        if invite.answer_key != self.answer_key or not self._check.verify(invite.check, checked):
            raise refuse("the words are not those of this invitation and this organization")

    def answer(
        self,
        entry: bytes,
        *,
        organization: bytes,
        invitation: bytes,
        member: bytes,
        keys: bytes,
        anchor: bytes,
        proof: bytes,
    ) -> Answer:
        """The answer of the invited: their keys, signed by a key that the words derive.

        Args:
            entry: the digest of the invitation's entry.
            organization, invitation, member: 16-byte identifiers.
        """
        signed = (entry, member, keys, anchor, proof)
        signature = self._answer.sign("answer", *signed)
        return Answer(
            roster.FORMAT, organization, invitation, member, keys, anchor, proof, signature
        )


class InvitationSecret:
    """16 random bytes."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) != fmt.INVITATION_BYTES:
            raise ValueError("an invitation's secret has 16 bytes")
        self._secret: Final = secret

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __reduce__(self) -> str:
        raise TypeError("keys are not pickled")

    @classmethod
    def generate(cls) -> InvitationSecret:
        return cls(runtime.random_bytes(fmt.INVITATION_BYTES))

    @classmethod
    def from_words(cls, text: str) -> InvitationSecret:
        """Undo :attr:`words`; case and white space do not matter.

        Raises:
            InvitationWords: not twelve words of the list, or with a mistake in them.
        """
        return cls(secret_of(text, fmt.INVITATION_WORDS, "invitation", refuse))

    @property
    def words(self) -> str:
        """Twelve words. Anyone who reads this answers for where they go."""
        return words_of(self._secret)

    def keys(self, organization: bytes, invitation: bytes) -> InvitationKeys:
        """
        Args:
            organization, invitation: 16-byte identifiers.
        """
        derive = HKDF(
            algorithm=hashes.SHA256(),
            length=fmt.KEY_BYTES,
            salt=organization + invitation,
            info=fmt.info(fmt.INVITATION),
        )
        return InvitationKeys(_Pair(derive.derive(self._secret)))


def refuse(message: str) -> InvitationWords:
    return InvitationWords(message)
