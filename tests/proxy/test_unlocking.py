"""Where the passphrase of the keyrings comes from."""

from __future__ import annotations

from pathlib import Path

import pytest

from encrypted_records.crypto.keys import Keyring
from encrypted_records.crypto.recovery import KdfCost, Passphrase, unwrap, wrap
from encrypted_records.errors import Startup
from encrypted_records.proxy.keyrings.files import passphrase_from

OWNER = bytes(16)


def is_passphrase(found: Passphrase | None, text: str) -> bool:
    """Whether ``found`` opens what ``text`` sealed."""
    assert found is not None
    sealed = wrap(Keyring.generate(), Passphrase(text, cost=KdfCost(8192, 1, 1)), OWNER)
    return bool(unwrap(sealed, found, OWNER).roots)


@pytest.mark.parametrize(
    "environment", [{}, {"ERS_KEYRING_PASSPHRASE": "", "ERS_KEYRING_PASSPHRASE_FILE": ""}], ids=str
)
def test_empty_variables_say_nothing(environment: dict[str, str]) -> None:
    assert passphrase_from(environment) is None


def test_the_variable_is_taken_as_it_is() -> None:
    assert is_passphrase(passphrase_from({"ERS_KEYRING_PASSPHRASE": " a b\n"}), " a b\n")


@pytest.mark.parametrize("content", [b"caf\xc3\xa9 ", b"caf\xc3\xa9 \n", b"cafe\xcc\x81 \r\n"])
def test_the_file_goes_first_and_a_newline_at_its_end_does_not_count(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "secret").write_bytes(content)
    environment = {
        "ERS_KEYRING_PASSPHRASE_FILE": str(tmp_path / "secret"),
        "ERS_KEYRING_PASSPHRASE": "not this one",
    }
    assert is_passphrase(passphrase_from(environment), "caf\u00e9 ")


@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff\xfe", b"x" * 5000])
def test_a_file_without_a_passphrase_stops_the_start_and_is_named_by_its_variable(
    tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "secret").write_bytes(content)
    environment = {
        "ERS_KEYRING_PASSPHRASE_FILE": str(tmp_path / "secret"),
        "ERS_KEYRING_PASSPHRASE": "not this one",
    }
    with pytest.raises(Startup, match="ERS_KEYRING_PASSPHRASE_FILE"):
        passphrase_from(environment)


def test_half_a_character_stops_the_start() -> None:
    with pytest.raises(Startup, match="ERS_KEYRING_PASSPHRASE"):
        passphrase_from({"ERS_KEYRING_PASSPHRASE": "\udcff"})
