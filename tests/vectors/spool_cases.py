"""The inputs of the vectors about spool files, sound and unsound."""

from __future__ import annotations

import hashlib
from typing import Any

from tests.reference import spool as ref
from tests.reference.msgpack import pack
from tests.vectors.cases import RECORDS, ROOT

UPLOAD, OTHER = RECORDS[0], RECORDS[1]
SALTS = [hashlib.sha256(label).digest() for label in (b"first append", b"second append")]
SESSIONS: list[ref.Session] = [(SALTS[0], [b"name,age\n", b"Ada,3"]), (SALTS[1], [b"6\n"])]
PLAIN = b"name,age\nAda,36\n"


def spool() -> dict[str, Any]:
    file = ref.write(ROOT, UPLOAD, 1, 1, SESSIONS)
    key = ref.spool_key(ROOT, UPLOAD, 1)
    note = pack(["filename Y2l0aWVzLmNzdg==", ""])
    joined = OTHER + (5).to_bytes(8, "big") + RECORDS[2] + (7).to_bytes(8, "big")
    return {
        "root": ROOT.hex(),
        "upload": UPLOAD.hex(),
        "K_spool": {str(kv): ref.spool_key(ROOT, UPLOAD, kv).hex() for kv in (1, 2)},
        "K_session": [ref.session_key(key, salt).hex() for salt in SALTS],
        "salts": [salt.hex() for salt in SALTS],
        "sessions": [[frame.hex() for frame in frames] for _, frames in SESSIONS],
        "plain": PLAIN.hex(),
        "file": file.hex(),
        "joined": _whole(2, joined),
        "note": _whole(3, note),
        "K_job": {str(kv): ref.job_key(ROOT, UPLOAD, kv).hex() for kv in (1, 2)},
        "bad": _bad(file),
    }


def _whole(kind: int, plain: bytes) -> dict[str, str]:
    file = ref.write(ROOT, UPLOAD, 1, kind, [(SALTS[0], [plain])])
    return {"plain": plain.hex(), "file": file.hex()}


def _bad(file: bytes) -> list[dict[str, Any]]:
    first = 30 + 33
    second = first + 5 + len(SESSIONS[0][1][0]) + 16
    later = second + 5 + len(SESSIONS[0][1][1]) + 16
    moved = file[:first] + file[second:later] + file[first:second] + file[later:]
    alone = file[:30] + file[later:]
    again = ref.write(ROOT, UPLOAD, 1, 1, [SESSIONS[1]])
    closed, unsupported = "does_not_open", "unsupported"
    wrong: list[tuple[str, bytes, str]] = [
        ("empty", b"", closed),
        ("cut short in its head", file[:29], closed),
        ("cut short between two frames", file[:second], closed),
        ("cut short in a frame", file[:-1], closed),
        ("cut short after a salt", file[: later + 33], closed),
        ("another magic", b"X" + file[1:], unsupported),
        ("a later version", file[:8] + b"\x02" + file[9:], unsupported),
        ("an unknown kind", file[:9] + b"\x04" + file[10:], unsupported),
        ("read as the other kind", file[:9] + b"\x02" + file[10:], closed),
        ("of another keyring version", file[:13] + b"\x02" + file[14:], closed),
        ("of another upload", file[:14] + OTHER + file[30:], closed),
        ("a salt altered", _flipped(file, 31), closed),
        ("a frame without a session", file[:30] + file[first:], closed),
        ("a marker of neither session nor frame", _flipped(file, first), closed),
        ("a length altered", _flipped(file, first + 4), closed),
        ("a ciphertext altered", _flipped(file, first + 5), closed),
        ("a tag altered", _flipped(file, len(file) - 1), closed),
        ("two frames swapped", moved, closed),
        ("a frame left out", file[:first] + file[second:], closed),
        ("a frame repeated", file[:second] + file[first:], closed),
        ("the first session left out", alone, closed),
        ("a session from another place", file[:later] + again[30:], closed),
    ]
    return [{"why": why, "file": one.hex(), "error": error} for why, one, error in wrong]


def _flipped(file: bytes, at: int) -> bytes:
    return file[:at] + bytes((file[at] ^ 0x40,)) + file[at + 1 :]
