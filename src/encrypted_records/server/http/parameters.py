"""Parameters of queries: how they are read, and refused."""

from __future__ import annotations

from rest_framework.request import Request

from encrypted_records.errors import BadInput, Flaw

MAX_NUMBER = 2**62


def invalid_parameter(name: str, detail: str) -> BadInput:
    """The refusal of a query parameter; ``detail`` is what was expected."""
    flaw = Flaw("invalid_parameter", detail, parameter=name)
    return BadInput(f"the parameter {name} is not valid", flaws=(flaw,))


def number_of(request: Request, name: str, least: int) -> int | None:
    """A query parameter that is an integer.

    Raises:
        BadInput: it is no integer, or less than ``least``.
    """
    text = request.query_params.get(name)
    if text is None:
        return None
    if text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= MAX_NUMBER:
        return int(text)
    raise invalid_parameter(name, f"expected an integer of at least {least}")


def flag_of(request: Request, name: str, *, default: bool) -> bool:
    """A query parameter that is true or false.

    Raises:
        BadInput: it is neither.
    """
    text = request.query_params.get(name)
    if text is None:
        return default
    if text in ("true", "false"):
        return text == "true"
    raise invalid_parameter(name, "expected true or false")
