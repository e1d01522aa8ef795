"""A second implementation of docs/SPEC.md, plain and slow, that shares no code with the package.

It is written from the specification alone, so that an error in either shows as a difference. It
imports nothing of ``encrypted_records``; only the tests beside it compare the two.
Every refusal is a :class:`Refused` with the code that the package's error tree gives it.
"""


class Refused(Exception):
    """What the specification says a reader refuses, under its stable code."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def does_not_open() -> Refused:
    return Refused("does_not_open")
