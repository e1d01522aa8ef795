"""The inputs of the vectors about keyring files and recovery phrases, sound and unsound."""

from __future__ import annotations

import hashlib
from typing import Any

from tests.reference import Refused, phrase
from tests.reference import keyring as ref
from tests.vectors.cases import RECORDS, ROOT

MACHINE_KEY = hashlib.sha256(b"machine key").digest()
OWNER, OTHER = RECORDS[0], RECORDS[1]
NONCE = bytes(range(12))
SALT = bytes(range(16))
ROOTS = {1: (1_765_432_100, ROOT), 2: (2**33, hashlib.sha256(b"second root").digest())}
#: One passphrase, spelled with and without composed characters.
PASSPHRASE, SAME, ANOTHER = "na\u00efve caf\u00e9 1", "nai\u0308ve cafe\u0301 1", "naive cafe 1"
#: The least that a reader takes: vectors are derived in every run of the tests.
COST = (8192, 1, 2)


def keyring() -> dict[str, Any]:
    roots = {str(kv): {"created": made, "root": root.hex()} for kv, (made, root) in ROOTS.items()}
    return {
        "roots": roots,
        "machine_key": _machine_key(),
        "passphrase": _passphrase(),
        "others": {
            str(wrapping): {
                "file": ref.wrap(ROOTS, MACHINE_KEY, OWNER, NONCE, wrapping).hex(),
                "key": MACHINE_KEY.hex(),
                "owner": OWNER.hex(),
            }
            for wrapping in range(3, 9)
        },
    }


def _machine_key() -> dict[str, Any]:
    file = ref.wrap(ROOTS, MACHINE_KEY, OWNER, NONCE)
    sound = {"file": file.hex(), "machine_key": MACHINE_KEY.hex(), "owner": OWNER.hex()}
    none = ref.wrap({}, MACHINE_KEY, OWNER, NONCE)
    wrong: list[tuple[str, dict[str, str], str]] = [
        ("damaged", {"file": _flipped(file, -1)}, "does_not_open"),
        ("damaged nonce", {"file": _flipped(file, 12)}, "does_not_open"),
        ("cut short", {"file": file[:-44].hex()}, "does_not_open"),
        ("nothing but a head", {"file": file[:24].hex()}, "does_not_open"),
        ("nothing but a head and a commitment", {"file": file[:56].hex()}, "does_not_open"),
        ("damaged commitment", {"file": _flipped(file, 24)}, "does_not_open"),
        ("without a commitment", {"file": (file[:24] + file[56:]).hex()}, "does_not_open"),
        ("committed to another key", {"file": _of_two_keys().hex()}, "does_not_open"),
        ("sealed under another key", {"file": _of_two_keys(flip=True).hex()}, "does_not_open"),
        ("versions that begin at 0", {"file": _numbered(0, 1).hex()}, "does_not_open"),
        ("versions that begin at 2", {"file": _numbered(2, 3).hex()}, "does_not_open"),
        ("versions with a gap", {"file": _numbered(1, 3).hex()}, "does_not_open"),
        ("a far version", {"file": _numbered(335_776_903).hex()}, "does_not_open"),
        ("of another user", {"owner": OTHER.hex()}, "does_not_open"),
        ("of another machine", {"machine_key": ROOT.hex()}, "does_not_open"),
        ("of no version", {"file": none.hex()}, "does_not_open"),
        ("newer version", {"file": (file[:10] + b"\x02" + file[11:]).hex()}, "unsupported"),
        ("another wrapping", {"file": (file[:11] + b"\x03" + file[12:]).hex()}, "does_not_open"),
        ("newer wrapping", {"file": (file[:11] + b"\x09" + file[12:]).hex()}, "unsupported"),
        ("another file", {"file": (b"X" + file[1:]).hex()}, "unsupported"),
        ("cut within the head", {"file": file[:23].hex()}, "unsupported"),
        ("empty", {"file": ""}, "unsupported"),
    ]
    return {"good": sound | {"nonce": NONCE.hex()}, "bad": _bad(sound, wrong)}


def _numbered(*versions: int) -> bytes:
    roots = {kv: ROOTS[at % 2 + 1] for at, kv in enumerate(versions)}
    return ref.wrap(roots, MACHINE_KEY, OWNER, NONCE)


def _of_two_keys(*, flip: bool = False) -> bytes:
    keys = (ROOT, MACHINE_KEY) if flip else (MACHINE_KEY, ROOT)
    return ref.wrap_of_two_keys(*keys, ROOTS, OWNER, NONCE)


def _passphrase() -> dict[str, Any]:
    chosen = ref.parameters(*COST, SALT)
    file = ref.wrap_with_passphrase(ROOTS, PASSPHRASE, OWNER, NONCE, chosen)
    assert file == ref.wrap_with_passphrase(ROOTS, SAME, OWNER, NONCE, chosen)
    sound = {"file": file.hex(), "passphrase": PASSPHRASE, "owner": OWNER.hex()}
    none = ref.wrap_with_passphrase({}, PASSPHRASE, OWNER, NONCE, chosen)
    wrong: list[tuple[str, dict[str, str], str]] = [
        ("of another passphrase", {"passphrase": ANOTHER}, "does_not_open"),
        ("a final newline", {"passphrase": PASSPHRASE + "\n"}, "does_not_open"),
        ("of another user, by passphrase", {"owner": OTHER.hex()}, "does_not_open"),
        ("altered memory", {"file": _with(file, (8193, 1, 2))}, "does_not_open"),
        ("altered passes", {"file": _with(file, (8192, 2, 2))}, "does_not_open"),
        ("altered lanes", {"file": _with(file, (8192, 1, 1))}, "does_not_open"),
        ("altered salt", {"file": _flipped(file, 24)}, "does_not_open"),
        ("altered nonce", {"file": _flipped(file, 40)}, "does_not_open"),
        ("altered commitment", {"file": _flipped(file, 52)}, "does_not_open"),
        ("altered tag", {"file": _flipped(file, -1)}, "does_not_open"),
        ("nothing but a head, by passphrase", {"file": file[:52].hex()}, "does_not_open"),
        ("of no version, by passphrase", {"file": none.hex()}, "does_not_open"),
        ("less memory than is of use", {"file": _with(file, (8191, 1, 2))}, "unsupported"),
        ("no memory", {"file": _with(file, (0, 1, 2))}, "unsupported"),
        ("too much memory", {"file": _with(file, (1048577, 1, 2))}, "unsupported"),
        ("four tebibytes", {"file": _with(file, (2**32 - 1, 1, 2))}, "unsupported"),
        ("no pass", {"file": _with(file, (8192, 0, 2))}, "unsupported"),
        ("too many passes", {"file": _with(file, (8192, 17, 2))}, "unsupported"),
        ("too many passes over so much", {"file": _with(file, (524289, 2, 2))}, "unsupported"),
        ("no lane", {"file": _with(file, (8192, 1, 0))}, "unsupported"),
        ("too many lanes", {"file": _with(file, (8192, 1, 17))}, "unsupported"),
        ("cut within the parameters", {"file": file[:39].hex()}, "unsupported"),
        ("cut within the nonce", {"file": file[:51].hex()}, "unsupported"),
    ]
    given = {"same_passphrase": SAME, "nonce": NONCE.hex(), "salt": SALT.hex()}
    cost = dict(zip(("memory_kib", "passes", "lanes"), COST, strict=True))
    return {"good": sound | given | {"cost": cost}, "bad": _bad(sound, wrong)}


def _flipped(file: bytes, at: int) -> str:
    changed = bytearray(file)
    changed[at] ^= 1
    return changed.hex()


def _with(file: bytes, cost: tuple[int, int, int]) -> str:
    return (file[:12] + ref.parameters(*cost, file[24:40]) + file[40:]).hex()


def _bad(
    sound: dict[str, str], wrong: list[tuple[str, dict[str, str], str]]
) -> list[dict[str, str]]:
    return [{"why": why, **sound, **change, "error": code} for why, change, code in wrong]


#: Of BIP-39's own vectors: 32 times one byte.
_PUBLISHED = {
    0x00: "abandon " * 23 + "art",
    0x7F: "legal winner thank year wave sausage worth useful " * 2
    + "legal winner thank year wave sausage worth title",
    0x80: "letter advice cage absurd amount doctor acoustic avoid " * 2
    + "letter advice cage absurd amount doctor acoustic bless",
    0xFF: "zoo " * 23 + "vote",
}


def phrases() -> dict[str, Any]:
    assert all(phrase.phrase(bytes([byte] * 32)) == text for byte, text in _PUBLISHED.items())
    roots = [bytes([byte] * 32) for byte in _PUBLISHED] + [ROOT]
    text = phrase.phrase(ROOT)
    words = text.split()
    swapped = [words[1], words[0], *words[2:]]
    same = [text.upper(), "  " + text.replace(" ", "\n\t ") + "\n"]
    wrong = [
        ("empty", ""),
        ("twelve words, sound in themselves", "abandon " * 11 + "about"),
        ("a word too few", " ".join(words[:-1])),
        ("a word too many", f"{text} {words[0]}"),
        ("two words swapped", " ".join(swapped)),
        ("another last word", " ".join([*words[:-1], "zoo"])),
        ("a word of no list", " ".join([*words[:-1], "zooo"])),
        ("a word cut short", " ".join([words[0][:3], *words[1:]])),
        ("a wrong checksum", "abandon " * 23 + "about"),
    ]
    return {
        "list": phrase.LIST_DIGEST,
        "good": [{"root": root.hex(), "phrase": phrase.phrase(root)} for root in roots],
        "same": {"root": ROOT.hex(), "phrases": same},
        "bad": [{"why": why, "phrase": one, "error": _refusal(one)} for why, one in wrong],
    }


def _refusal(text: str) -> str:
    try:
        phrase.root_of(text)
    except Refused as refused:
        return refused.code
    raise AssertionError("every bad phrase is refused")
