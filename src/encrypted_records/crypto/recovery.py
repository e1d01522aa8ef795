"""Keyring <-> the bytes of a keyring file, or a recovery phrase (docs/SPEC.md, section 8).

The file has a head with the wrapping's parameters, a commitment to the wrapping key, and the root
keys under AES-256-GCM. The whole head and the owner's user id are associated data, so no parameter
can be altered unnoticed. AES-GCM does not commit to its key; the commitment ensures that no file
opens under two passphrases.

A recovery phrase is the root key itself in words of BIP-39's English list. Invitations, and digests
that people compare, use the same words. No message here repeats a word.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Final, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import constant_time, hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from mnemonic import Mnemonic

from encrypted_records import runtime
from encrypted_records.crypto import format as fmt
from encrypted_records.crypto.keys import Keyring, RootKey
from encrypted_records.errors import BadInput, DoesNotOpen, Unsupported
from encrypted_records.model.texts import normalized

#: More characters than anyone types.
_MAX_CHARACTERS = 4096


def words_of(secret: bytes) -> str:
    """16 bytes as 12 words, 32 as 24. The caller is responsible for their secrecy."""
    return _bip39().to_mnemonic(secret)


def secret_of(text: str, count: int, name: str, refuse: Callable[[str], BadInput]) -> bytes:
    """Undo :func:`words_of`; case and white space do not matter.

    Args:
        count: the expected number of words.
        name: the name of the words for messages, such as "recovery phrase".
        refuse: creates the error from a message.

    Raises:
        BadInput: the error from ``refuse``, if words are too many, unknown, or mistyped.
    """
    if len(text) > _MAX_CHARACTERS:
        raise refuse(f"the {name} has at most {_MAX_CHARACTERS} characters")
    words = normalized("NFKD", text).lower().split()
    if len(words) != count:
        raise refuse(f"the {name} has {count} words, not {len(words)}")
    unknown = [at for at, word in enumerate(words, 1) if word not in _bip39().wordlist]
    if unknown:
        places = ", ".join(map(str, unknown))
        raise refuse(f"not in the list of words: word {places} of the {name}")
    try:
        return bytes(_bip39().to_entropy(words))
    except ValueError:
        raise refuse(
            f"a word of the {name} is wrong, or the order is: the checksum does not match"
        ) from None


@cache
def _bip39() -> Mnemonic:
    return Mnemonic("english")


def spelled(digest: bytes, count: int) -> str:
    """The first bits of a public digest as words that people can compare, eleven bits a word."""
    bits = int.from_bytes(digest, "big") >> (8 * len(digest) - 11 * count)
    places = [bits >> (11 * (count - 1 - at)) & 2047 for at in range(count)]
    return " ".join(_bip39().wordlist[place] for place in places)


#: Longest passphrase, in bytes of UTF-8: more than anyone types.
MAX_PASSPHRASE_BYTES = 4096

#: OpenSSL's Argon2id deadlocks if two derivations with several lanes run at once: the number of its
#: threads is limited, and each derivation waits for threads that the other holds.
_one_at_a_time = threading.Lock()

_HEAD = struct.Struct(f">{len(fmt.KEYRING_MAGIC)}sBB")
_COST = struct.Struct(">III")
_ENTRY = struct.Struct(f">IQ{fmt.KEY_BYTES}s")
_PARAMETER_BYTES = {
    fmt.WRAP_MACHINE_KEY: 0,
    fmt.WRAP_PASSPHRASE: _COST.size + fmt.SALT_BYTES,
    fmt.WRAP_KEYCHAIN: 0,
    **dict.fromkeys(fmt.WRAP_SERVICES, 0),
}


class KdfCost(NamedTuple):
    """The cost of Argon2id for a passphrase."""

    memory_kib: int
    passes: int
    lanes: int


#: The second recommended option of RFC 9106, for machines with limited memory.
COST = KdfCost(65_536, 3, 4)


class WrappingKey:
    """32 random bytes that are stored separately from the keyring files that they seal."""

    wrapping: int

    def __init__(self, secret: bytes) -> None:
        if len(secret) != fmt.KEY_BYTES:
            raise ValueError("a wrapping key has 32 bytes")
        self._secret: Final = secret

    def parameters(self) -> bytes:
        return b""

    def key(self, parameters: bytes) -> bytes:
        assert not parameters
        return self._secret


class MachineKey(WrappingKey):
    """Stored in the same folder as the keyrings."""

    wrapping = fmt.WRAP_MACHINE_KEY


class KeychainKey(WrappingKey):
    """Stored in the operating system's keychain."""

    wrapping = fmt.WRAP_KEYCHAIN


class ServiceWrappingKey(WrappingKey):
    """Stored in the same folder as the keyrings, encrypted by an external service.

    Args:
        wrapping: the service; one of ``WRAP_SERVICES``.
    """

    def __init__(self, wrapping: int, secret: bytes) -> None:
        super().__init__(secret)
        self.wrapping = wrapping


class Passphrase:
    """A passphrase, from which Argon2id derives the key.

    Args:
        cost: for files that are written; a file that is read states its own cost.

    Raises:
        BadInput: empty, too long, or not Unicode text.
    """

    wrapping: Final = fmt.WRAP_PASSPHRASE

    def __init__(self, text: str, *, cost: KdfCost = COST) -> None:
        try:
            size = len(text) if text.isascii() else len(text.encode())
        except UnicodeEncodeError:
            raise BadInput("the passphrase is not UTF-8") from None
        if size > MAX_PASSPHRASE_BYTES:
            raise BadInput(f"a passphrase has at most {MAX_PASSPHRASE_BYTES} bytes")
        self._secret: Final = normalized("NFC", text).encode()
        if not self._secret:
            raise BadInput("the passphrase is empty")
        self._cost = cost

    def parameters(self) -> bytes:
        # A fresh salt gives a fresh key: no key of a passphrase is used with two nonces.
        return _COST.pack(*self._cost) + runtime.random_bytes(fmt.SALT_BYTES)

    def key(self, parameters: bytes) -> bytes:
        """The wrapping key under these parameters; takes a third of a second at the usual cost.

        Raises:
            Unsupported: their cost is too high, or too low to be useful.
        """
        cost = KdfCost._make(_COST.unpack_from(parameters))
        if (
            cost.memory_kib not in fmt.ARGON2_MEMORY_KIB
            or cost.passes not in fmt.ARGON2_PASSES
            or cost.lanes not in fmt.ARGON2_LANES
            or cost.memory_kib * cost.passes > fmt.ARGON2_WORK
        ):
            raise Unsupported(
                "the keyring file's Argon2id parameters are out of bounds",
                hint="restore the keyring file from a backup",
            )
        derive = Argon2id(
            salt=parameters[_COST.size :],
            length=fmt.KEY_BYTES,
            iterations=cost.passes,
            lanes=cost.lanes,
            memory_cost=cost.memory_kib,
        )
        with _one_at_a_time:
            return derive.derive(self._secret)


Wrapper = WrappingKey | Passphrase


def wrapping_of(file: bytes) -> int:
    """The wrapping of a keyring file: a ``WRAP_`` number of :mod:`.format`.

    Raises:
        Unsupported: not a keyring file, or of an unknown version or wrapping.
    """
    if len(file) < _HEAD.size or not file.startswith(fmt.KEYRING_MAGIC):
        raise Unsupported("this is not a keyring file", hint="restore it from a backup")
    _, version, wrapping = _HEAD.unpack_from(file)
    if version != fmt.KEYRING_VERSION or wrapping not in _PARAMETER_BYTES:
        raise Unsupported("the keyring file is of a newer version", hint="upgrade this program")
    return int(wrapping)


def wrap(keyring: Keyring, wrapper: Wrapper, owner: bytes) -> bytes:
    """The keyring file of the user ``owner`` (16 bytes).

    The nonce is random: a machine key wraps a few files, far below 2**32 messages.
    """
    parameters, nonce = wrapper.parameters(), runtime.random_bytes(fmt.NONCE_BYTES)
    start = _HEAD.pack(fmt.KEYRING_MAGIC, fmt.KEYRING_VERSION, wrapper.wrapping)
    head = start + parameters + nonce
    assert _ascend(keyring.roots), "a keyring has versions 1, 2, 3 and so on"
    plain = b"".join(
        _ENTRY.pack(version, root.created, root.export())
        for version, root in sorted(keyring.roots.items())
    )
    secret = wrapper.key(parameters)
    sealed = _file_key(secret, head).encrypt(nonce, plain, head + owner)
    return head + _commitment(secret, head) + sealed


def _commitment(secret: bytes, head: bytes) -> bytes:
    """The commitment to a wrapping key under this head: finding another key with the same
    commitment means finding a collision of SHA-256.
    """
    return _expand(secret, fmt.COMMITMENT, head, fmt.COMMITMENT_BYTES)


def _file_key(secret: bytes, head: bytes) -> AESGCM:
    return AESGCM(_expand(secret, fmt.FILE, head, fmt.KEY_BYTES))


def _expand(secret: bytes, label: bytes, head: bytes, length: int) -> bytes:
    info = fmt.info(label, head)
    return HKDFExpand(algorithm=hashes.SHA256(), length=length, info=info).derive(secret)


def _ascend(versions: Iterable[int]) -> bool:
    return all(version == at for at, version in enumerate(sorted(versions), start=1))


def unwrap(file: bytes, wrapper: Wrapper, owner: bytes) -> Keyring:
    """Undo :func:`wrap`; ``wrapper`` is of the kind that :func:`wrapping_of` names.

    Raises:
        Unsupported: as :func:`wrapping_of`, or with absurd parameters.
        DoesNotOpen: damaged, of another user, wrapped under another key or passphrase, or with
            versions that do not ascend from 1.
    """
    wrapping = wrapping_of(file)
    end = _HEAD.size + _PARAMETER_BYTES[wrapping]
    parameters, nonce = file[_HEAD.size : end], file[end : end + fmt.NONCE_BYTES]
    head, body = file[: end + fmt.NONCE_BYTES], file[end + fmt.NONCE_BYTES :]
    commitment, sealed = body[: fmt.COMMITMENT_BYTES], body[fmt.COMMITMENT_BYTES :]
    if len(nonce) < fmt.NONCE_BYTES:
        raise Unsupported("this is not a keyring file", hint="restore it from a backup")
    if wrapping != wrapper.wrapping:
        raise _does_not_open(wrapper)
    secret = wrapper.key(parameters)
    if not constant_time.bytes_eq(commitment, _commitment(secret, head)):
        raise _does_not_open(wrapper)
    try:
        plain = _file_key(secret, head).decrypt(nonce, sealed, head + owner)
    except (InvalidTag, ValueError):
        raise _does_not_open(wrapper) from None
    if not plain or len(plain) % _ENTRY.size:
        raise _does_not_open(wrapper)
    entries = list(_ENTRY.iter_unpack(plain))
    if [version for version, _, _ in entries] != list(range(1, len(entries) + 1)):
        raise DoesNotOpen(
            "the versions in the keyring file do not ascend from 1",
            hint="restore the keyring file from a backup that this service has written",
        )
    return Keyring({version: RootKey(root, created=created) for version, created, root in entries})


def _does_not_open(wrapper: Wrapper) -> DoesNotOpen:
    if isinstance(wrapper, WrappingKey):
        key_name = {
            fmt.WRAP_MACHINE_KEY: "this machine's key",
            fmt.WRAP_KEYCHAIN: "the key in this keychain",
        }.get(wrapper.wrapping, "the key that the key service opened")
        return DoesNotOpen(
            f"the keyring file cannot be decrypted with {key_name}",
            hint="restore the keyring file and its key from the same backup",
        )
    return DoesNotOpen(
        "the keyring file cannot be decrypted with this passphrase",
        hint="use the passphrase that protects it, or restore the file from a backup",
    )


def phrase_of(root: RootKey) -> str:
    """The recovery phrase: 24 words that are the key. The caller is responsible for
    their secrecy.
    """
    return words_of(root.export())


def keyring_of(phrases: Sequence[str], *, created: int) -> Keyring:
    """The keyring of these phrases, one for each version from 1 on, in order.

    Raises:
        BadInput: no phrases, or an invalid phrase.
    """
    if not phrases:
        raise _no_phrase("a keyring needs the recovery phrases of all its versions")
    roots = [root_of(phrase, created=created) for phrase in phrases]
    return Keyring(dict(enumerate(roots, start=1)))


def root_of(phrase: str, *, created: int) -> RootKey:
    """Undo :func:`phrase_of`; case and white space do not matter.

    Raises:
        BadInput: not a phrase, or a phrase with a mistake.
    """
    secret = secret_of(phrase, fmt.PHRASE_WORDS, "recovery phrase", _no_phrase)
    return RootKey(secret, created=created)


def _no_phrase(message: str) -> BadInput:
    return BadInput(
        message,
        code="invalid_phrase",
        hint="compare the words, and their order, with what was written down",
    )
