"""The secret of an invitation: twelve words that authenticate both sides to one another.

With them the inviter proves to the invited person which roster is the inviter's (``check``), and
the invited person proves to the owners which keys are theirs (the answer). The API never has the
words, and its mail does not contain them (docs/SPEC.md, section 15.6).
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


class CheckKey(Mac):
    """Proves that the author of an invitation had its words, and saw the roster before it."""


class _Pair(Secret):
    """P, from which both keys of an invitation are derived."""

    def answer(self) -> Signer:
        return Signer(self._derive(fmt.ANSWER))

    def check(self) -> CheckKey:
        return CheckKey(self._derive(fmt.CHECK))


class InvitationKeys:
    """Keys derived from the words, for one invitation of one organization."""

    def __init__(self, pair: _Pair) -> None:
        self._answer: Final = pair.answer()
        self._check: Final = pair.check()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    @property
    def answer_key(self) -> bytes:
        """The 32-byte public key that verifies answers."""
        return self._answer.public

    def compute_check(self, previous: bytes, invite: roster.Invite[str]) -> bytes:
        """``check`` of an invitation, regardless of its present value.

        Args:
            previous: the digest of the entry before the invitation's.
        """
        return self._check.compute(roster.checked_by_words(previous, invite))

    def verify(self, previous: bytes, invite: roster.Invite[str]) -> None:
        """Verify that a holder of these words wrote the invitation, after this roster.

        Raises:
            InvitationWords: the words or the roster differ.
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
    ) -> roster.Answer:
        """The answer of the invited person: their keys, signed by a key derived from the words.

        Args:
            entry: the digest of the invitation's entry.
            organization, invitation, member: 16-byte identifiers.
        """
        signed = (entry, member, keys, anchor, proof)
        signature = self._answer.sign("answer", *signed)
        return roster.Answer(
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
            InvitationWords: not twelve words of the list, or words with a mistake.
        """
        return cls(secret_of(text, fmt.INVITATION_WORDS, "invitation", refuse))

    @property
    def words(self) -> str:
        """Twelve words. The caller is responsible for their secrecy."""
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
