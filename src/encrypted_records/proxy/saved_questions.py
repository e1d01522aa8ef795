"""Saved questions, linked questions, and readings of files kept for a schema:
``questions.sqlite3`` in the proxy's folder.

- Questions, their names and readings are encrypted under the user's keyring (docs/SPEC.md, section
  16), and padded. The file reveals only their user and schema.
- A linked question is encrypted under the link's own secret, which is not stored (section 16.1):
  everyone who has the link can open it. The file reveals only its schema and its maker.
- None of this is sent to the API.
- A question that cannot be decrypted is counted and kept: another keyring may decrypt it.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from encrypted_records import runtime
from encrypted_records.crypto.format import NONCE_BYTES
from encrypted_records.crypto.keys import Keyring, LinkSecret
from encrypted_records.errors import BadInput, Conflict, DoesNotOpen, KeyMissing, NotFound
from encrypted_records.ingest.reading.recipe import MAX_BYTES
from encrypted_records.model.ids import new_id
from encrypted_records.proxy.disk import Database
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.keyrings.store import Keyrings

_TABLE = """
CREATE TABLE IF NOT EXISTS question (
    id BLOB PRIMARY KEY,
    user BLOB NOT NULL,
    schema BLOB NOT NULL,
    sealed BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS question_by_schema ON question (user, schema);
CREATE TABLE IF NOT EXISTS link (
    id BLOB PRIMARY KEY,
    user BLOB NOT NULL,
    schema BLOB NOT NULL,
    sealed BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS reading (
    user BLOB NOT NULL,
    schema BLOB NOT NULL,
    id BLOB NOT NULL,
    sealed BLOB NOT NULL,
    PRIMARY KEY (user, schema)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS link_by_user ON link (user);
"""
_VERSION = struct.Struct(">I")
_LENGTH = struct.Struct(">I")
#: Saved questions of a user in a schema.
MOST_QUESTIONS = 100
#: Maximum number of links per user, and the lifetime of a link.
MOST_LINKS = 1000
LINK_DAYS = 90
#: Maximum characters of a name, and bytes of a question with its name.
MOST_NAME = 100
MOST_BYTES = 64 << 10
#: Encrypted questions are padded to a multiple of this, in bytes.
PAD_BYTES = 512

#: Suffix of the schema's id in the authenticated place of a reading.
_READING = b"reading"

#: Names and values of a form's fields.
Form = list[tuple[str, str]]
#: Identifiers and encrypted questions.
SealedQuestions = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class SavedQuestion:
    """``form`` is the form that the records page receives for it."""

    id: bytes
    name: str
    form: Form


class QuestionStore:
    """Safe to use from several threads; every change is on disk when its call returns.

    Every method raises OutOfSpace where the disk is full, and Unavailable (``proxy_store_failed``)
    where the file fails otherwise.
    """

    def __init__(self, path: Path) -> None:
        """
        Raises:
            Startup: the file is damaged, or cannot be opened.
        """
        self._database = Database(
            path,
            _TABLE,
            code="proxy_store_failed",
            message="saved questions and kept readings cannot be read or written",
            loss="saved questions and kept readings are then gone",
        )

    def find_all(self, user: bytes, schema: bytes) -> SealedQuestions:
        """Identifiers and encrypted questions, the oldest first."""
        with self._database.asking() as database:
            return _find_all(database, user, schema)

    def put(self, identifier: bytes, user: bytes, schema: bytes, sealed: bytes) -> None:
        """Store a new question, or new content of an existing question."""
        self.change(user, schema, lambda _known: (identifier, sealed))

    def change(
        self, user: bytes, schema: bytes, decide: Callable[[SealedQuestions], tuple[bytes, bytes]]
    ) -> None:
        """Change the saved questions in one transaction: ``decide`` gets all of them, and returns
        the identifier and content of a new or changed one. If it raises, nothing is changed.
        """
        with self._database.writing() as database:
            identifier, sealed = decide(_find_all(database, user, schema))
            database.execute(
                "INSERT OR REPLACE INTO question (id, user, schema, sealed) VALUES (?, ?, ?, ?)",
                (identifier, user, schema, sealed),
            )

    def delete_all(self, user: bytes, schema: bytes) -> None:
        with self._database.asking() as database:
            database.execute("DELETE FROM question WHERE user = ? AND schema = ?", (user, schema))
            database.execute("DELETE FROM reading WHERE user = ? AND schema = ?", (user, schema))

    def delete(self, identifier: bytes, user: bytes, schema: bytes) -> bool:
        """Delete a question; returns whether it existed."""
        deleted = self._database.run(
            "DELETE FROM question WHERE id = ? AND user = ? AND schema = ?",
            *(identifier, user, schema),
        )
        return deleted > 0

    def put_link(self, identifier: bytes, user: bytes, schema: bytes, sealed: bytes) -> None:
        """Store a link. Expired links are deleted.

        Raises:
            BadInput: the user has made too many already.
        """
        with self._database.writing() as database:
            # Identifiers begin with their time.
            database.execute("DELETE FROM link WHERE id < ?", (_first_that_works(),))
            (made,) = database.execute(
                "SELECT count(*) FROM link WHERE user = ?", (user,)
            ).fetchone()
            if made >= MOST_LINKS:
                raise BadInput(
                    f"you have {MOST_LINKS} links, which is the limit",
                    hint=f"each link expires {LINK_DAYS} days after it was created",
                )
            database.execute(
                "INSERT INTO link (id, user, schema, sealed) VALUES (?, ?, ?, ?)",
                (identifier, user, schema, sealed),
            )

    def find_link(self, identifier: bytes, schema: bytes) -> bytes | None:
        """The encrypted question of a link that has not expired."""
        if identifier < _first_that_works():
            return None
        found = self._database.row(
            "SELECT sealed FROM link WHERE id = ? AND schema = ?", identifier, schema
        )
        return None if found is None else bytes(found[0])

    def find_reading(self, user: bytes, schema: bytes) -> tuple[bytes, bytes] | None:
        """Identifier and encrypted reading."""
        found = self._database.row(
            "SELECT id, sealed FROM reading WHERE user = ? AND schema = ?", user, schema
        )
        return None if found is None else (bytes(found[0]), bytes(found[1]))

    def put_reading(self, identifier: bytes, user: bytes, schema: bytes, sealed: bytes) -> None:
        self._database.run(
            "INSERT OR REPLACE INTO reading (user, schema, id, sealed) VALUES (?, ?, ?, ?)",
            *(user, schema, identifier, sealed),
        )

    def delete_reading(self, user: bytes, schema: bytes) -> bool:
        """Delete a reading; returns whether it existed."""
        statement = "DELETE FROM reading WHERE user = ? AND schema = ?"
        return self._database.run(statement, user, schema) > 0

    def close(self) -> None:
        self._database.close()


class QuestionLinks:
    """Every method raises as :class:`QuestionStore`."""

    def __init__(self, store: QuestionStore) -> None:
        self._store = store

    async def add(self, user: bytes, schema: bytes, form: Form) -> tuple[bytes, LinkSecret]:
        """Make a link to a question; returns its identifier, and the secret, which is not stored.

        Raises:
            BadInput: the question is too long, or ``user`` has made too many links.
        """
        identifier, secret = new_id(), LinkSecret.generate()
        sealed = secret.seal(schema, identifier, pad(msgspec.msgpack.encode(form)))
        await runtime.in_thread(self._store.put_link, identifier, user, schema, sealed)
        return identifier, secret

    async def open(self, schema: bytes, identifier: bytes, secret: str) -> Form:
        """
        Raises:
            NotFound: there is no such link of this schema, or it has expired.
            DoesNotOpen: the secret is wrong.
        """
        sealed = await runtime.in_thread(self._store.find_link, identifier, schema)
        if sealed is None:
            raise NotFound(
                "the question of this link is not here, or no longer",
                hint=f"a link works for {LINK_DAYS} days, at the proxy that created it",
            )
        return _form.decode(_cut(LinkSecret.read(secret).open(schema, identifier, sealed)))


def _first_that_works() -> bytes:
    """The lowest possible identifier of a link that has not expired."""
    made = max(0, int((runtime.wall() - LINK_DAYS * 86_400) * 1000))
    return made.to_bytes(6, "big")


class KeptReadings:
    """The reading that each user keeps for each schema, as the JSON of a recipe.

    Every method raises Closed where the keyring is locked, and as :class:`QuestionStore`.
    """

    def __init__(self, store: QuestionStore, keyrings: Keyrings) -> None:
        self._store = store
        self._keyrings = keyrings

    async def find(self, holder: Holder, schema: bytes) -> bytes | None:
        """
        Raises:
            Conflict: ``reading_lost``; it was encrypted with another keyring, or altered.
        """
        found = await runtime.in_thread(self._store.find_reading, holder.user, schema)
        if found is None:
            return None
        identifier, sealed = found
        keyring = await runtime.in_thread(self._keyrings.of, holder)
        try:
            return open_kept(keyring, identifier, sealed, schema + _READING)
        except (DoesNotOpen, KeyMissing):
            raise Conflict(
                "your keyring cannot decrypt the reading that is kept for this schema",
                code="reading_lost",
                hint="ers import FILE --schema SCHEMA --reading none --keep detects the reading"
                " again; over HTTP: ?kept=false, or DELETE /api/schemas/<id>/reading/",
            ) from None

    async def keep(self, holder: Holder, schema: bytes, reading: bytes) -> None:
        """Keep a reading; it replaces the previous one."""
        identifier = new_id()
        keyring = await runtime.in_thread(self._keyrings.of, holder)
        sealed = seal_kept(keyring, identifier, pad(reading, MAX_BYTES), schema + _READING)
        put = self._store.put_reading
        await runtime.in_thread(put, identifier, holder.user, schema, sealed)

    async def forget(self, holder: Holder, schema: bytes) -> None:
        """
        Raises:
            NotFound: there is none.
        """
        if not await runtime.in_thread(self._store.delete_reading, holder.user, schema):
            raise no_reading()


def no_reading() -> NotFound:
    return NotFound("no reading is kept for this schema")


class SavedQuestions:
    """Every method raises Closed where the keyring is locked, and as :class:`QuestionStore`."""

    def __init__(self, store: QuestionStore, keyrings: Keyrings) -> None:
        self._store = store
        self._keyrings = keyrings

    async def find_all(self, holder: Holder, schema: bytes) -> tuple[list[SavedQuestion], int]:
        """All saved questions by name, and the number of those that this keyring cannot decrypt."""
        return await runtime.in_thread(self._list, holder, schema)

    async def find(self, holder: Holder, schema: bytes, identifier: bytes) -> SavedQuestion:
        """
        Raises:
            NotFound: there is none, or it does not open.
        """
        known, _ = await self.find_all(holder, schema)
        return _find_question(known, identifier)

    async def add(self, holder: Holder, schema: bytes, name: str, form: Form) -> None:
        """
        Raises:
            BadInput: the name is empty or exists already, there are too many questions, or the
                question is too long.
        """

        def decide(sealed: SealedQuestions) -> tuple[bytes, bytes]:
            if len(sealed) >= MOST_QUESTIONS:
                raise BadInput(
                    f"a schema has at most {MOST_QUESTIONS} saved questions",
                    hint="delete one first",
                )
            known, _ = self._open_all(holder, schema, sealed)
            return self._seal(holder, schema, SavedQuestion(new_id(), name, form), known)

        await runtime.in_thread(self._store.change, holder.user, schema, decide)

    async def rename(self, holder: Holder, schema: bytes, identifier: bytes, name: str) -> None:
        """
        Raises:
            NotFound: as :meth:`find`.
            BadInput: the name is empty or exists already.
        """

        def decide(sealed: SealedQuestions) -> tuple[bytes, bytes]:
            known, _ = self._open_all(holder, schema, sealed)
            found = _find_question(known, identifier)
            others = [question_ for question_ in known if question_.id != identifier]
            return self._seal(holder, schema, replace(found, name=name), others)

        await runtime.in_thread(self._store.change, holder.user, schema, decide)

    async def delete(self, holder: Holder, schema: bytes, identifier: bytes) -> None:
        """
        Raises:
            NotFound: there is none.
        """
        if not await runtime.in_thread(self._store.delete, identifier, holder.user, schema):
            raise NotFound("there is no such question")

    async def forget_schemas(self, user: bytes, schemas: Iterable[bytes]) -> None:
        """Delete a user's questions and readings of schemas that the user has deleted."""
        for schema in schemas:
            await runtime.in_thread(self._store.delete_all, user, schema)

    def _list(self, holder: Holder, schema: bytes) -> tuple[list[SavedQuestion], int]:
        return self._open_all(holder, schema, self._store.find_all(holder.user, schema))

    def _open_all(
        self, holder: Holder, schema: bytes, questions: SealedQuestions
    ) -> tuple[list[SavedQuestion], int]:
        opened: list[SavedQuestion] = []
        lost = 0
        for identifier, sealed in questions:
            try:
                opened.append(self._open(holder, schema, identifier, sealed))
            except (DoesNotOpen, KeyMissing):
                lost += 1
        return sorted(opened, key=lambda question: question.name.casefold()), lost

    def _seal(
        self,
        holder: Holder,
        schema: bytes,
        question: SavedQuestion,
        others: Sequence[SavedQuestion],
    ) -> tuple[bytes, bytes]:
        name = " ".join(question.name.split())
        if not name or len(name) > MOST_NAME:
            raise BadInput(f"a question needs a name of 1 to {MOST_NAME} characters")
        if any(other.name == name for other in others):
            raise BadInput("another question already has this name", hint="choose another name")
        padded = pad(msgspec.msgpack.encode((name, question.form)))
        keyring = self._keyrings.of(holder)
        return question.id, seal_kept(keyring, question.id, padded, schema)

    def _open(
        self, holder: Holder, schema: bytes, identifier: bytes, sealed: bytes
    ) -> SavedQuestion:
        plain = open_kept(self._keyrings.of(holder), identifier, sealed, schema)
        name, form = _content.decode(plain)
        return SavedQuestion(identifier, name, form)


def seal_kept(keyring: Keyring, identifier: bytes, padded: bytes, place: bytes) -> bytes:
    """Encrypt the output of :func:`pad` for a place (docs/SPEC.md, section 16)."""
    version, nonce = keyring.newest, runtime.random_bytes(NONCE_BYTES)
    key = keyring.root(version).question(identifier, version)
    return _VERSION.pack(version) + nonce + key.encrypt(nonce, padded, place)


def open_kept(keyring: Keyring, identifier: bytes, sealed: bytes, place: bytes) -> bytes:
    """Decrypt and unpad.

    Raises:
        DoesNotOpen, KeyMissing: the ciphertext was altered, or was made with another keyring.
    """
    begin = _VERSION.size + NONCE_BYTES
    if len(sealed) < begin:
        raise DoesNotOpen("a saved question, a kept reading or a webhook is truncated")
    (version,) = _VERSION.unpack_from(sealed)
    key = keyring.root(version).question(identifier, version)
    return _cut(key.decrypt(sealed[_VERSION.size : begin], sealed[begin:], place))


def pad(plain: bytes, most: int = MOST_BYTES) -> bytes:
    """
    Raises:
        BadInput: it is too long.
    """
    if len(plain) > most:
        raise BadInput("this is too long to be saved")
    framed = _LENGTH.pack(len(plain)) + plain
    return framed + bytes(-len(framed) % PAD_BYTES)


def _cut(padded: bytes) -> bytes:
    """Undo :func:`pad`."""
    (length,) = _LENGTH.unpack_from(padded)
    return padded[_LENGTH.size : _LENGTH.size + length]


def _find_all(database: sqlite3.Connection, user: bytes, schema: bytes) -> SealedQuestions:
    found = database.execute(
        "SELECT id, sealed FROM question WHERE user = ? AND schema = ? ORDER BY id", (user, schema)
    )
    return [(bytes(identifier), bytes(sealed)) for identifier, sealed in found]


def _find_question(known: Sequence[SavedQuestion], identifier: bytes) -> SavedQuestion:
    found = next((question for question in known if question.id == identifier), None)
    if found is None:
        raise NotFound("there is no such question")
    return found


_content = msgspec.msgpack.Decoder(tuple[str, Form])
_form = msgspec.msgpack.Decoder(Form)
