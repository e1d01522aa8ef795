"""The people of the vectors about sharing, their keys, and one encapsulation to one of them.

ML-KEM draws randomness that no library takes from outside. So the ciphertext below was made once;
its shared secret is what the receiver's key gives.
"""

from __future__ import annotations

import base64
import hashlib

from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey

from tests.reference import identity as ref

ORGANIZATION = bytes.fromhex("0190a0000000700080000000000000a1")
NOW = 1_800_000_000
NAMES = ("ada", "grace", "alan", "mallory", "nightly")


def uid(number: int) -> bytes:
    return bytes.fromhex(f"0190a00000007000800000000000e{number:03x}")


MEMBERS = {name: uid(at) for at, name in enumerate(NAMES, 1)}
PEOPLE, BILLS, ADULTS, CHILDREN, OTHER = (uid(at) for at in range(16, 21))
FIRST, SECOND = uid(32), uid(33)


def fixed(label: str) -> bytes:
    """32 bytes that look like nothing."""
    return hashlib.sha256(b"sharing " + label.encode()).digest()


def root(name: str, kv: int = 1) -> bytes:
    return fixed(f"root of {name} {kv}")


def identity(name: str, kv: int = 1) -> ref.Identity:
    return ref.identity(root(name, kv), ORGANIZATION, MEMBERS[name], kv)


#: To Grace under version 1 of her keyring.
CIPHERTEXT = base64.b64decode(
    """
jdWzcBkiUyxH7nuCBuLvJLZZAo0Sj5qkJmN+IxZma7VpqYnVUJMmdxiR3gwaeNajF+lpbWD9cGE4+eKtNIk8j8Kv5fSx/Bzf
TpOAo8EZY5zSuY8SxombYZampOTYus/KcWKUfMNVbSHK08ooGha7ruKr/sXAeLMgV7V6p2duY2d4iqasRc4nnfR1JSiiZQ2G
H8WGFgJxQAkxD8lmp4o8+Bkg9kLwXxIDUoFdnwLq8NHMBcA6wRT4E4FsIeXir9golWcke9+FbbrGCI/8xTaFJN8NoAJklwPF
n4t00dkV8XYLlnlIzmsIKU/nIbniZSvo6ZfxcV/487wylAZlTp0Q5RYEEjSFj8tqX4F3Z9bpvKO0bH+CO7fBhBYYixKmX1UD
A0jEwMPUvU5fXEKQzfYVLvmemdbtTNThyVyoEXwzYktMF1Zwb/PbId0K5CrLmFU0cWAtUFwjSEtOIaCYi75UsSt9IMWKtGVe
aA7IvNdoTkatGYHh/Dp3Rv+n/BzRkLQmGwWoNRRgqFy3tKPtVglu/nGguFyzFNiUFYYxnhNXIxnVBX1Yo+h3+aqzRTa7q7v7
Cx/da/RS8B3JiOT+CKbCCwm5PIp16fPu4QYLwh7BDH0j3C4QqFXt+IrPK2FsqYhH6gDBGckGWJlPn8OjDVThnH2OdUfTTZQN
jo02urJ7xHVUVbrKco84DheqdaSqSr6QyryqSvMrGRbJq0SiErwDmtpA7iaKSYXw2122tiJ/42v2kEllKqAhte3g0qBMECyx
sEXmKfZQnRWmnd38mSu6IEHnTUEePi/QB8yYL37N2IdjpzwSau+WNnK1+PwDIWoM0TcbKlT58p/rGGJsgX2tqBYevF50k9+G
dMNKSN67EKNZTvA+49acvAaO9vUku9yJ0iJE3nb9oMRxst7OgmY4d2yAg9Svo+a8da3YWvrevsGUWJFQczhtVI3DSlJQBbgc
AU8I+xo+pbfk164fkwdd0lpKcZ8noZnYiR1KvXSQWwZywfFHJ3+UqSLrvzEmIX9e5Ny+GbRKBg4nWPXNE07sChSreZkREb+p
hhoxpjJ360usj0jQ669IX0J/rgqHpiRkNcCulwfZdv5o4O5aDcKKuAfpNXErH0lw1b3cOK4rCPzgN9Zc+atUd1v80tBXc7SP
d/PJhO62852+MYl+6ji1yuH5U6B6adHudgtUyAsbijZ4ydWnPyh/3HKg6Hg1VW/7Mg138tmQFI/UU6JE2cKdn1q6pnxY1+Vm
dCc51aiW84fU+KJsSKYxfW7BzEqhK7KQe3TbN9es/6Ok3K6yQKEpTbzOowd6r6dkFMvY4mHu5QM8yl7sQCPUhWsT0yPq5SAj
WbjS5117CTkoqliXBSnuY4wnl3ojpqQ7R8Q+bN6wJgcIE8e11kD0pkXG3Bsq9rVY7q6mU+x1gqkO09CagkmKMAJrIV53nsTK
q5+L9t7/Hy8=
"""
)


def encapsulation(kv: int = 1) -> tuple[bytes, bytes]:
    """The ciphertext and its shared secret; for another version of her keyring, the secret that
    ML-KEM draws where the ciphertext is none of its own, always the same."""
    key = MLKEM768PrivateKey.from_seed_bytes(identity("grace", kv).mlkem)
    return CIPHERTEXT, key.decapsulate(CIPHERTEXT)
