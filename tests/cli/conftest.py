"""A service, accounts and the command for tests of commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command import Ers, environment
from tests.support.fixtures import quick_passphrases
from tests.support.service import Account, Service, state_beside

__all__ = ["quick_passphrases"]


@pytest.fixture(scope="session")
def running(services: Callable[[str], Service]) -> Service:
    return services("sqlite")


@pytest.fixture(scope="module")
def account(running: Service) -> Account:
    return running.new_account()


@pytest.fixture
def ers(
    running: Service,
    account: Account,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Ers:
    """The command, as somebody who has set their e-mail and password."""
    return Ers(
        monkeypatch,
        capsys,
        **environment(running, account)
        | {"XDG_STATE_HOME": state_beside(running, tmp_path / "state")},
    )
