"""A setting comes from its flag, else its variable, else the config file, else its default."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from encrypted_records.cli import main
from encrypted_records.cli.commands import api, up
from encrypted_records.cli.settings import (
    TABLE,
    Settings,
    flag,
    read_config,
    url_of,
    variable,
    without_password,
)
from encrypted_records.cli.supervise import supervisor
from encrypted_records.errors import InvalidSetting

Resolve = Callable[..., Settings]


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("ERS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))


@pytest.fixture
def resolve(monkeypatch: pytest.MonkeyPatch) -> Resolve:
    """What ``ers proxy`` would run with."""
    seen: list[Settings] = []
    monkeypatch.setattr(up, "run_proxy", lambda settings, **_: seen.append(settings))

    def run(*arguments: str) -> Settings:
        assert main.run(["proxy", *arguments]) == 0
        return seen.pop()

    return run


def write_config(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config" / "encrypted-records" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(text)


def test_the_flag_wins_over_variable_file_and_default(
    resolve: Resolve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert resolve().proxy_port == 8080
    write_config(tmp_path, "proxy_port = 1001")
    assert resolve().proxy_port == 1001
    monkeypatch.setenv("ERS_PROXY_PORT", "1002")
    assert resolve().proxy_port == 1002
    assert resolve("--proxy-port", "1003").proxy_port == 1003


def test_an_empty_variable_says_nothing(
    resolve: Resolve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_config(tmp_path, "proxy_port = 1001")
    monkeypatch.setenv("ERS_PROXY_PORT", "")
    assert resolve().proxy_port == 1001


def test_a_named_config_file_replaces_the_usual_one(resolve: Resolve, tmp_path: Path) -> None:
    write_config(tmp_path, "proxy_port = 1001\nproxy_host = '::1'")
    other = tmp_path / "other.toml"
    other.write_text("proxy_port = 1004")
    settings = resolve("--config", str(other))
    assert (settings.proxy_port, settings.proxy_host) == (1004, "127.0.0.1")


def test_the_config_file_may_hold_settings_of_other_commands(
    resolve: Resolve, tmp_path: Path
) -> None:
    write_config(tmp_path, 'database_url = "postgresql://db/x"')
    assert resolve().database_url is None


def test_the_data_folder_is_the_platforms_by_default(resolve: Resolve, tmp_path: Path) -> None:
    assert resolve().data_dir == tmp_path / "share" / "encrypted-records"


def test_a_tilde_in_a_path_is_the_home_folder(
    resolve: Resolve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    write_config(tmp_path, 'data_dir = "~/records"')
    assert resolve().data_dir == tmp_path / "home" / "records"


def test_an_unknown_key_in_the_file_is_named_with_the_nearest_known_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_config(tmp_path, "api_prot = 1")
    assert main.run(["up"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"error: the config file {tmp_path}/config/encrypted-records/config.toml"
        " has an unknown key: api_prot",
        "hint: did you mean api_port?",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("api_port = 'x'", "api_port: expected a number"),
        ("api_port = true", "api_port: expected a number"),
        ("api_port = 70000", "api_port: 70000 is not in the range 1<=x<=65535"),
        ("api_host = 1", "api_host: expected a string"),
        ("log_format = 'xml'", "log_format: 'xml' is not one of 'text', 'json'"),
        ("base_url = 'api'", "base_url: expected http:// or https://"),
        ("base_url = 'http://api/v1'", "base_url: expected http://host:port, with no path"),
        ("database_url = 'mysql://u:pw@h/d'", "database_url: expected postgresql:// or"),
        ("email_url = 'mail.example'", "email_url: expected smtp:// or"),
        ("[up]", "unknown key: up"),
        ("api_port =", "is not valid TOML"),
    ],
)
def test_a_config_file_with_a_bad_value_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    with pytest.raises(InvalidSetting) as refused:
        read_config(file, must_exist=True)
    assert message in refused.value.message


def test_a_config_file_that_was_named_must_be_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["up", "--config", "/nowhere.toml"]) == 2
    assert "there is no config file /nowhere.toml" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (
            ["up", "--api-port", "x"],
            [
                "error: invalid value for '--api-port' (env var: 'ERS_API_PORT'):"
                " 'x' is not a valid integer range",
                "hint: see ers up --help",
            ],
        ),
        (["up", "--nope"], ["error: no such option '--nope'", "hint: see ers up --help"]),
        (["zzzzz"], ["error: no such command: ers zzzzz", "hint: see ers --help"]),
    ],
)
def test_misuse_is_one_line_and_where_to_look(
    arguments: list[str], lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(arguments) == 2
    assert capsys.readouterr().err.splitlines() == lines


def test_a_bug_of_ours_shows_no_traceback_and_no_values(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: Settings) -> None:
        raise ValueError("a diagnosis")

    monkeypatch.setattr(api, "run_api", fail)
    assert main.run(["api"]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith("error: internal error (ValueError)\nhint: ")
    assert "diagnosis" not in shown


@pytest.mark.parametrize("command", [up.up, up.demo, api.api, up.proxy])
def test_help_shows_flag_variable_and_default_of_every_setting(
    command: click.Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run([str(command.name), "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    settings = [param.name for param in command.params if param.name in TABLE]
    assert settings
    for setting in settings:
        assert flag(setting) in shown
        assert variable(setting) in shown
    assert shown.count("default: ") >= len(settings)


def test_every_setting_belongs_to_a_command() -> None:
    commands = (up.up, up.demo, api.api, up.proxy)
    assert set(TABLE) == {param.name for command in commands for param in command.params} & set(
        TABLE
    )
    assert set(TABLE) - {"base_url", "mirror"} <= {param.name for param in up.up.params}


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("::", "http://[::1]:80"),
        ("records.example.org", "http://records.example.org:80"),
    ],
)
def test_a_listener_is_named_by_an_address_that_reaches_it(host: str, url: str) -> None:
    assert url_of(host, 80) == url


def test_a_shown_url_has_no_password() -> None:
    shown = without_password("postgresql://ers:hunter2@db.example:5432/ers?password=hunter2")
    assert shown == "postgresql://db.example:5432/ers"
    for unescaped in ("smtp://ada:12/hunter@mail.example", "smtp://ada:12#hunter@mail.example"):
        assert without_password(unescaped) == "smtp://..."


def test_no_side_gets_the_credentials_of_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ERS_DEVICE", "ERS_PASSWORD", "ERS_SERVICE", "ERS_TOKEN"):
        monkeypatch.setenv(name, "violet")
    for side in ("api", "proxy"):
        assert "violet" not in supervisor.environment(Settings(), side).values()
