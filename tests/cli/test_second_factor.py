"""Commands of an account whose logins need a code of an authenticator app."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.cli.command import Ers, environment
from tests.support import forked
from tests.support.authenticator import Authenticator
from tests.support.service import ERS, Service, clean_environment


def test_a_person_adds_a_second_factor_logs_in_with_it_and_removes_it(
    ers: Ers, running: Service, tmp_path: Path
) -> None:
    account = running.new_account()
    told = clean_environment(**environment(running, account), ERS_CONFIG=os.devnull)
    with forked.Forked(
        [*ERS, "user", "second-factor", "add"],
        env=told,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as adding:
        assert adding.stdin is not None
        assert adding.stdout is not None
        assert "authenticator app" in adding.stdout.readline()
        app = Authenticator(adding.stdout.readline().strip())
        out, _ = adding.communicate(f"{app.code()}\n")
    assert adding.returncode == 0
    codes = [line.strip() for line in out.splitlines() if line.count("-") == 3]
    assert len(codes) == 10
    assert out.endswith("Logins need a code from now on.\n")

    ers.set(ERS_EMAIL=account.email, ERS_PASSWORD=account.password)
    refused = ers("user", "get")  # by Basic credentials
    assert (refused.code, "ers token create NAME" in refused.err) == (4, False)
    assert "second factor" in refused.err

    ers.unset("ERS_EMAIL")
    assert ers("login", "--email", account.email).code == 2
    wrong = ers("login", "--email", account.email, typed=f"{app.stale()}\n")
    assert (wrong.code, "recovery code" in wrong.err) == (4, True)
    ers.done("login", "--email", account.email, typed=f"{app.code()}\n")
    ers.unset("ERS_PASSWORD")
    assert ers.done("user", "second-factor", "get").one == {"enabled": True, "recovery_codes": 10}
    ers.done("token", "create", "report", typed=f"{account.password}\n{codes[0]}\n")
    typed = f"{account.password}\n{codes[1]}\n"
    renewed = ers.done("user", "second-factor", "renew-codes", typed=typed).out
    code = renewed.splitlines()[-1].strip()
    assert code not in codes
    ers.done("user", "second-factor", "remove", typed=f"{account.password}\n{code}\n")
    ers.set(ERS_EMAIL=account.email, ERS_PASSWORD=account.password)
    assert ers.done("user", "get").one["email"] == account.email
