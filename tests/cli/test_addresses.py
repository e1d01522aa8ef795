"""Commands by which an account gets another address."""

from __future__ import annotations

from tests.cli.command import Ers, environment
from tests.support.service import Service


def test_an_account_gets_another_address_and_keeps_its_device(ers: Ers, running: Service) -> None:
    account = running.new_account()
    ers.set(**environment(running, account))
    ers.done("login", "--email", account.email)
    ers.unset("ERS_EMAIL", "ERS_PASSWORD")
    devices = ers.done("device", "list").lines
    new = f"new-{account.email}"

    wrong = ers("user", "email", new, typed="something else\n")
    assert (wrong.code, "current password" in wrong.err) == (2, True)
    asked = ers.done("user", "email", new, typed=f"{account.password}\n")
    assert f"ers user email {new} --link" in asked.out
    link = running.link_for(new)
    text = (
        f"{running.proxy_url}/confirm-email/?user_id={link.user_id}&timestamp={link.timestamp}"
        f"&signature={link.signature}"
    )
    said = ers.done("user", "email", new, "--link", typed=f"{text}\n").out
    assert f"ers login --email {new}" in said

    assert ers("user", "get").code == 4  # the login has ended
    ers.set(ERS_PASSWORD=account.password)
    assert ers("login", "--email", account.email).code == 4
    ers.done("login", "--email", new)
    ers.unset("ERS_PASSWORD")
    assert ers.done("user", "get").one["email"] == new
    assert ers.done("device", "list").lines == devices
