"""What a proxy does is the same whatever database the API has, so most tests use one.

Those that look into the database run on both, as tests/e2e and tests/server do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import keyring
import pytest
from keyring.backends import fail

from tests.cli.keychain import FileKeychain
from tests.support.fixtures import definition, front, overrides, proxy, quick_passphrases, store
from tests.support.service import Service

__all__ = ["definition", "front", "overrides", "proxy", "quick_passphrases", "store"]


@pytest.fixture(scope="session")
def service(request: pytest.FixtureRequest, services: Callable[[str], Service]) -> Service:
    return services(getattr(request, "param", "sqlite"))


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Lets a test choose the library's backend; none of this machine is ever asked."""
    before = keyring.get_keyring()
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    keyring.set_keyring(fail.Keyring())
    yield monkeypatch
    keyring.set_keyring(before)


@pytest.fixture
def chain(backend: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An unlocked keychain; the file that holds it."""
    path = tmp_path / "keychain.json"
    path.write_text("{}")
    backend.setenv("ERS_TEST_KEYCHAIN", str(path))
    keyring.set_keyring(FileKeychain())
    return path
