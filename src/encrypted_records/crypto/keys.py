"""The derivation tree of docs/SPEC.md, section 2: one type per key, none of which prints.

A key is passed on as an object that does a single job. Only these methods return its bytes:
:meth:`RootKey.export`, for the keyring file, :meth:`DatasetKey.export`, for grants,
:meth:`LinkSecret.text`, for links, and ``hand_over``, for worker processes. The keys of a schema
have the same type whether they come from a keyring or were granted.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, Protocol

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import constant_time, hashes, hmac
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from cryptography.utils import Buffer

from encrypted_records import runtime
from encrypted_records.crypto import format as fmt
from encrypted_records.crypto.identity import Identity
from encrypted_records.errors import DoesNotOpen, KeyMissing
from encrypted_records.model import ids
from encrypted_records.model.definition import FieldSpec

if TYPE_CHECKING:
    from encrypted_records.crypto.sealing import RowOpener


class Secret:
    """32 secret bytes that neither ``repr`` nor pickling reveals."""

    __slots__ = ("__dict__", "_secret")

    def __init__(self, secret: bytes) -> None:
        if len(secret) != fmt.KEY_BYTES:
            raise ValueError("a key has 32 bytes")
        self._secret: Final = secret

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __reduce__(self) -> str:
        raise TypeError("keys are not pickled")

    def _derive(self, *parts: bytes, length: int = fmt.KEY_BYTES) -> bytes:
        expand = HKDFExpand(algorithm=hashes.SHA256(), length=length, info=fmt.info(*parts))
        return expand.derive(self._secret)


class Mac(Secret):
    @cached_property
    def _keyed(self) -> hmac.HMAC:
        # Creating it with the key takes longer than hashing a short message.
        return hmac.HMAC(self._secret, hashes.SHA256())

    def _over(self, parts: tuple[bytes, ...]) -> hmac.HMAC:
        state = self._keyed.copy()
        for part in parts:
            state.update(part)
        return state

    def compute(self, *parts: bytes) -> bytes:
        return self._over(parts).finalize()

    def verify(self, tag: bytes, *parts: bytes) -> bool:
        """Compare in constant time."""
        try:
            self._over(parts).verify(tag)
        except InvalidSignature:
            return False
        return True


class Cipher(Secret):
    @cached_property
    def _aead(self) -> AESGCM:
        # A fresh AESGCM object per message would cost half of the sealing rate.
        return AESGCM(self._secret)

    def encrypt(self, nonce: bytes, plain: bytes, context: bytes) -> bytes:
        """AES-256-GCM: ciphertext and 16-byte tag. The caller must not reuse the nonce."""
        return self._aead.encrypt(nonce, plain, context)

    def encrypt_into(self, nonce: bytes, plain: Buffer, context: bytes, out: memoryview) -> int:
        """Encrypt into the first bytes of ``out``, and return their number; see :meth:`encrypt`."""
        return self._aead.encrypt_into(nonce, plain, context, out)

    def decrypt(self, nonce: bytes, sealed: bytes, context: bytes) -> bytes:
        """Undo :meth:`encrypt`.

        Raises:
            DoesNotOpen: altered, of another place, or of another key.
        """
        try:
            return self._aead.decrypt(nonce, sealed, context)
        except (InvalidTag, ValueError):
            raise DoesNotOpen("a ciphertext cannot be decrypted") from None


#: Cached groups: a field's keys by group, and a schema key's openers by group.
GROUPS_KEPT = 256


class LogKey(Mac):
    """Authenticates commits."""


class LedgerKey(Cipher):
    """Seals the proxy's data of one schema's log, in few messages under random nonces."""


class CheckpointKey(Mac):
    """Authenticates checkpoints of a log."""


class UidKey(Mac):
    """Derives uids that stay safe even if the random generator repeats itself."""

    def uid(self, content: bytes) -> bytes:
        """A 16-byte uid for an object whose plaintext has the digest ``content``.

        Keys are derived from uids, and nonces repeat between uids. With purely random uids, a
        cloned machine that draws the same bytes twice would seal two contents under one key;
        because the content is part of the derivation, equal uids mean equal contents.
        """
        return self.compute(runtime.random_bytes(32), content)[: fmt.UID_BYTES]

    def draw(self, origin: bytes, below: int) -> int:
        """A number below ``below`` that only holders of the key can compute; the same ``origin``
        always gives the same number (docs/SPEC.md, section 6.2.1).
        """
        drawn = self.compute(b"dummies", hashlib.sha256(origin).digest())
        return int.from_bytes(drawn[:8], "big") % below

    def of_request(self, key: bytes, digest: bytes, number: int) -> bytes:
        """32 bytes for the ids of a request that may be repeated (docs/SPEC.md, section 2.2).

        Args:
            key: 16 bytes that identify the request.
            digest: SHA-256 of its body.
            number: the index of the id within the request; below 2**32.
        """
        return self.compute(b"request", key, digest, number.to_bytes(4, "big"))

    def of_question(self, digest: bytes) -> bytes:
        """16 bytes that identify a query in its cursors (docs/SPEC.md, section 2.3).

        Args:
            digest: SHA-256 of the query.
        """
        return self.compute(b"question", digest)[: fmt.UID_BYTES]


class CoverKey(Mac):
    """Draws cover rows and pages, which are requested along with the needed ones."""

    def draw(self, question: bytes, *place: bytes) -> int:
        """A number from 0 to 2**64 - 1, the same in every process (docs/SPEC.md, section 17).

        Args:
            question: 32 bytes that identify the query.
        """
        return int.from_bytes(self.compute(question, *place)[:8], "big")


class TailKey(Mac):
    """Hashes the part of a string that does not fit into an index key."""


class MetaKey(Cipher):
    """Seals one segment's header; it never seals a second message."""


class SealKey(Cipher):
    """Seals one field's values in one group; the nonce is the ordinal."""

    def encrypt_all(
        self, nonces: Iterable[bytes], plain: Iterable[bytes], contexts: Iterable[bytes]
    ) -> list[bytes]:
        """:meth:`encrypt` of several values in one call."""
        return list(map(self._aead.encrypt, nonces, plain, contexts))

    def decrypt_all(
        self, nonces: Iterable[bytes], sealed: Iterable[bytes], contexts: Iterable[bytes]
    ) -> list[bytes]:
        """:meth:`decrypt` of several values in one call.

        Raises:
            DoesNotOpen: a value does not open.
        """
        try:
            return list(map(self._aead.decrypt, nonces, sealed, contexts))
        except (InvalidTag, ValueError):
            raise DoesNotOpen("a ciphertext cannot be decrypted") from None


class IndexKey(Cipher):
    """Seals one field's pages in one segment; the nonce is the page's kind and number."""


class SessionKey(Cipher):
    """Seals the data of one append to a spool file; the nonce is the frame's number."""


class JobKey(Cipher):
    """Seals the proxy's data of one job, in few messages under random nonces."""


class AnchorKey(Mac):
    """Lets a member recognise the organization whose invitation it answered (docs/SPEC.md, section
    15.4).
    """

    def anchor(self, found: bytes) -> bytes:
        """32 bytes for the organization whose first entry has the digest ``found``."""
        return self.compute(found)

    def holds(self, anchor: bytes, found: bytes) -> bool:
        """Whether :meth:`anchor` of ``found`` is ``anchor``; in constant time."""
        return self.verify(anchor, found)


class QuestionKey(Cipher):
    """Seals one saved query, again under a random nonce each time that it is renamed."""


class SpoolKey(Secret):
    """The key for one upload's spool file, under keyring version ``version``."""

    def __init__(self, secret: bytes, *, upload: bytes, version: int) -> None:
        super().__init__(secret)
        self.upload = upload
        self.version = version

    def hand_over(self) -> bytes:
        """The 32 bytes, for a worker process (:mod:`encrypted_records.proxy.workers.pool`)."""
        return self._secret

    def session(self, salt: bytes) -> SessionKey:
        return SessionKey(self._derive(fmt.SESSION, salt))


class FieldKey(Secret):
    """The key for one field, valid as long as its type, bounds and precision do not change."""

    def __init__(self, secret: bytes) -> None:
        super().__init__(secret)
        self._seals: dict[bytes, SealKey] = {}

    def seal(self, group: bytes) -> SealKey:
        # The rows of an answer belong to few groups, and deriving takes longer than opening a
        # field.
        if (key := self._seals.get(group)) is None:
            if len(self._seals) >= GROUPS_KEPT:
                self._seals.clear()
            key = self._seals[group] = SealKey(self._derive(fmt.SEAL, group))
        return key

    def index(self, segment: bytes) -> IndexKey:
        return IndexKey(self._derive(fmt.INDEX, segment))

    @cached_property
    def tail(self) -> TailKey:
        return TailKey(self._derive(fmt.TAIL))


class MetasKey(Secret):
    """The key for the headers of a schema's segments."""

    def meta(self, segment: bytes) -> MetaKey:
        return MetaKey(self._derive(fmt.META, segment))


class SchemaKey(Secret):
    """The key for one schema under one keyring version, or one epoch of its dataset."""

    def __init__(self, secret: bytes, *, organization: bytes, schema: bytes, version: int) -> None:
        super().__init__(secret)
        self.organization = organization
        self.schema = schema
        self.version = version
        self._fields: dict[tuple[int, bytes], FieldKey] = {}
        #: openers of rows by group uid; :mod:`.sealing` keeps them here, so that they go with the
        #: key
        self.openers: dict[bytes, RowOpener] = {}

    def hand_over(self) -> bytes:
        """The 32 bytes, for a worker process (:mod:`encrypted_records.proxy.workers.pool`)."""
        return self._secret

    @cached_property
    def id(self) -> bytes:
        return self._derive(fmt.KEY_ID, length=fmt.KEY_ID_BYTES)

    @cached_property
    def log(self) -> LogKey:
        return LogKey(self._derive(fmt.LOG))

    @cached_property
    def ledger(self) -> LedgerKey:
        return LedgerKey(self._derive(fmt.LEDGER))

    @cached_property
    def checkpoint(self) -> CheckpointKey:
        return CheckpointKey(self._derive(fmt.CHECKPOINT))

    @cached_property
    def uids(self) -> UidKey:
        return UidKey(self._derive(fmt.UID))

    @cached_property
    def cover(self) -> CoverKey:
        return CoverKey(self._derive(fmt.COVER))

    def meta(self, segment: bytes) -> MetaKey:
        return self._metas.meta(segment)

    @cached_property
    def _metas(self) -> MetasKey:
        return MetasKey(self._derive(fmt.METAS))

    def field(self, spec: FieldSpec) -> FieldKey:
        identity = (spec.id, spec.binding)
        if (key := self._fields.get(identity)) is None:
            key = FieldKey(self._derive(fmt.FIELD, spec.id_bytes, spec.binding))
            self._fields[identity] = key
        return key


class RootKey(Secret):
    """A root key: one version of a keyring, added at ``created`` (seconds since 1970;
    0: unknown).
    """

    def __init__(self, secret: bytes, *, created: int = 0) -> None:
        super().__init__(secret)
        self.created = created

    @classmethod
    def generate(cls, *, created: int = 0) -> RootKey:
        return cls(runtime.random_bytes(fmt.KEY_BYTES), created=created)

    def export(self) -> bytes:
        """The 32 bytes. The caller is responsible for their secrecy."""
        return self._secret

    @cached_property
    def fingerprint(self) -> bytes:
        """8 bytes that identify the key to people."""
        return self._derive(fmt.FINGERPRINT, length=fmt.FINGERPRINT_BYTES)

    @cached_property
    def verifier(self) -> bytes:
        """32 bytes that distinguish this key from any other, and reveal nothing else about it."""
        return self._derive(fmt.VERIFIER)

    def schema(self, organization: bytes, schema: bytes, version: int) -> SchemaKey:
        """The schema's key under this root, which has keyring version ``version``; 16-byte ids."""
        secret = self._derive(fmt.SCHEMA, organization, schema, version.to_bytes(4, "big"))
        return SchemaKey(secret, organization=organization, schema=schema, version=version)

    def identity(self, organization: bytes, member: bytes, version: int) -> Identity:
        """The identity of ``member`` in an organization under this root of version ``version``.

        Args:
            organization, member: 16-byte identifiers.
        """
        place = (organization, member, version.to_bytes(4, "big"))
        return Identity(
            self._derive(fmt.IDENTITY, fmt.SIGN, *place),
            self._derive(fmt.IDENTITY, fmt.X25519, *place),
            self._derive(fmt.IDENTITY, fmt.MLKEM, *place, length=fmt.MLKEM_SEED_BYTES),
        )

    def anchor(self, organization: bytes, member: bytes, version: int) -> AnchorKey:
        """The key of a member's anchors under this root of version ``version``."""
        place = (organization, member, version.to_bytes(4, "big"))
        return AnchorKey(self._derive(fmt.ANCHOR, *place))

    @property
    def service_id(self) -> bytes:
        """The 16-byte id of the service with this root; no secret key for another service's id can
        have this root.
        """
        return self._derive(fmt.SERVICE, length=ids.ID_BYTES)

    def token(self, member: bytes) -> bytes:
        """The 32-byte token of a service account at the API. The caller is responsible for its
        secrecy.
        """
        return self._derive(fmt.TOKEN, member)

    def job(self, job: bytes, version: int) -> JobKey:
        """The key for the proxy's data of a job under this root of version ``version``."""
        return JobKey(self._derive(fmt.JOB, job, version.to_bytes(4, "big")))

    def question(self, question: bytes, version: int) -> QuestionKey:
        """The key of a saved query under this root of version ``version``."""
        return QuestionKey(self._derive(fmt.QUESTION, question, version.to_bytes(4, "big")))

    def spool(self, upload: bytes, version: int) -> SpoolKey:
        """The key of an upload's bytes on disk under this root of version ``version``.

        Args:
            upload: 16-byte identifier.
        """
        secret = self._derive(fmt.SPOOL, upload, version.to_bytes(4, "big"))
        return SpoolKey(secret, upload=upload, version=version)


@dataclass(frozen=True, repr=False)
class Keyring:
    """A user's root keys by version; the newest seals new data."""

    roots: Mapping[int, RootKey]

    @classmethod
    def generate(cls, *, created: int = 0) -> Keyring:
        return cls({1: RootKey.generate(created=created)})

    def __repr__(self) -> str:
        return f"<Keyring of {len(self.roots)} version(s)>"

    @property
    def newest(self) -> int:
        return max(self.roots)

    @property
    def fingerprint(self) -> bytes:
        return self.roots[self.newest].fingerprint

    def rotate(self, *, created: int = 0) -> Keyring:
        """This keyring with an added version, whose root key is independent of the older ones."""
        return Keyring({**self.roots, self.newest + 1: RootKey.generate(created=created)})

    def root(self, version: int) -> RootKey:
        """The root key of ``version``.

        Raises:
            KeyMissing: the keyring has no such version.
        """
        if (root := self.roots.get(version)) is None:
            raise KeyMissing(f"the keyring has no version {version}")
        return root

    def spool(self, upload: bytes, version: int | None = None) -> SpoolKey:
        """The key of an upload's bytes on disk, under ``version`` or the newest version.

        Raises:
            KeyMissing: the keyring has no such version.
        """
        wanted = self.newest if version is None else version
        return self.root(wanted).spool(upload, wanted)

    def schema(self, organization: bytes, schema: bytes) -> SchemaKeys:
        """The keys of one schema; both identifiers are 16 bytes."""
        return SchemaKeys(self, organization, schema)


class SchemaKeys:
    """The keys of one schema under all versions of a keyring, each derived when first needed.

    The stated version selects the key, and key ids are compared. Keys are never found by trying to
    decrypt, because GCM does not commit to a key (docs/SPEC.md, section 2).
    """

    def __init__(self, keyring: Keyring, organization: bytes, schema: bytes) -> None:
        self.organization = organization
        self.schema = schema
        self._keyring = keyring
        self._derived: dict[int, SchemaKey] = {}

    def __repr__(self) -> str:
        return f"<SchemaKeys of {self._keyring!r}>"

    @property
    def newest(self) -> SchemaKey:
        """The key that seals new data."""
        return self.of(self._keyring.newest)

    def of(self, version: int) -> SchemaKey:
        """The schema's key under keyring version ``version``.

        Raises:
            KeyMissing: the keyring has no such version.
        """
        if (key := self._derived.get(version)) is None:
            key = self._keyring.root(version).schema(self.organization, self.schema, version)
            self._derived[version] = key
        return key

    def find(self, version: int, key_id: bytes) -> SchemaKey:
        """The key of ``version``; ``key_id`` must match.

        Raises:
            KeyMissing: it is not in this keyring; the message names it.
        """
        needed = f"this schema's records are encrypted with key {key_id.hex()} of keyring version"
        if version not in self._keyring.roots:
            raise KeyMissing(
                f"{needed} {version}; the newest version of this keyring is {self._keyring.newest}"
            )
        key = self.of(version)
        if key.id != key_id:
            raise KeyMissing(f"{needed} {version}; version {version} of this keyring is another")
        return key


class LogKeys(Protocol):
    """The keys of one schema, from any source. ``version`` is that of a keyring, or an epoch."""

    @property
    def organization(self) -> bytes: ...

    @property
    def schema(self) -> bytes: ...

    @property
    def newest(self) -> SchemaKey:
        """The key that seals new data.

        Raises:
            Closed: the key is not here.
        """

    def of(self, version: int) -> SchemaKey:
        """The schema's key of a version.

        Raises:
            KeyMissing: the key is not here.
        """

    def find(self, version: int, key_id: bytes) -> SchemaKey:
        """The schema's key of a version; ``key_id`` must match.

        Raises:
            KeyMissing: the key is not here; the message names it.
        """


class DatasetKey(Secret):
    """D[e], of one dataset in one epoch: random, and never derived from an older one.

    If it were derived, a member with the older key would have this key, too. The commitment is
    public in the roster, so that all members get the same key of an epoch (docs/SPEC.md, section
    15.3).
    """

    def __init__(self, secret: bytes, *, organization: bytes, dataset: bytes, epoch: int) -> None:
        super().__init__(secret)
        self.organization = organization
        self.dataset = dataset
        self.epoch = epoch

    @classmethod
    def generate(cls, organization: bytes, dataset: bytes, epoch: int) -> DatasetKey:
        """A random key, independent of all others."""
        drawn = runtime.random_bytes(fmt.KEY_BYTES)
        return cls(drawn, organization=organization, dataset=dataset, epoch=epoch)

    def export(self) -> bytes:
        """The 32 bytes, only for grants."""
        return self._secret

    @cached_property
    def commitment(self) -> bytes:
        """32 bytes that are unique to this key of the dataset and epoch, and reveal nothing about
        it.
        """
        epoch = self.epoch.to_bytes(4, "big")
        return self._derive(fmt.COMMITMENT, self.organization, self.dataset, epoch)

    def fits(self, commitment: bytes) -> bool:
        """Whether the commitment is to this key; in constant time."""
        return constant_time.bytes_eq(self.commitment, commitment)

    def schema(self, schema: bytes) -> SchemaKey:
        """The key of one schema of the dataset, in this epoch.

        Args:
            schema: 16-byte identifier.
        """
        epoch = self.epoch.to_bytes(4, "big")
        return SchemaKey(
            self._derive(fmt.SCHEMA, self.organization, schema, epoch),
            organization=self.organization,
            schema=schema,
            version=self.epoch,
        )


_LINK_TEXT = re.compile(r"[A-Za-z0-9_-]{43}")
_LINK_VERSION = b"\x01"


class _LinkKey(Cipher):
    """Seals a single query, once."""


class LinkSecret(Secret):
    """The part of a link after ``#``, which seals the link's query (docs/SPEC.md, section 16.1).

    Only the link contains the secret. A proxy that stores the sealed query does not store it.
    """

    @classmethod
    def generate(cls) -> LinkSecret:
        return cls(runtime.random_bytes(fmt.KEY_BYTES))

    @classmethod
    def read(cls, text: str) -> LinkSecret:
        """
        Raises:
            DoesNotOpen: the text is not the secret of a link.
        """
        if not _LINK_TEXT.fullmatch(text):
            raise DoesNotOpen("the secret of a link is not whole")
        return cls(base64.urlsafe_b64decode(f"{text}="))

    def text(self) -> str:
        """43 characters for the link. The caller is responsible for their secrecy."""
        return base64.urlsafe_b64encode(self._secret).decode("ascii").rstrip("=")

    def seal(self, schema: bytes, link: bytes, plain: bytes) -> bytes:
        """Seal a padded query for the link ``link`` to the schema ``schema``."""
        nonce = runtime.random_bytes(fmt.NONCE_BYTES)
        return _LINK_VERSION + nonce + self._key(schema, link).encrypt(nonce, plain, _LINK_VERSION)

    def open(self, schema: bytes, link: bytes, sealed: bytes) -> bytes:
        """Undo :meth:`seal`.

        Raises:
            DoesNotOpen: altered, of another link or schema, or under another secret.
        """
        begin = len(_LINK_VERSION) + fmt.NONCE_BYTES
        if sealed[:1] != _LINK_VERSION:
            raise DoesNotOpen("a link is of a format this version does not know")
        return self._key(schema, link).decrypt(sealed[1:begin], sealed[begin:], _LINK_VERSION)

    def _key(self, schema: bytes, link: bytes) -> _LinkKey:
        return _LinkKey(self._derive(fmt.LINK, schema, link))
