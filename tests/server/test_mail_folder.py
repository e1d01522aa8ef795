"""Messages in the data folder: who is shown their links, and how long they stay."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.server.api import Api, free_port, running_api, start, text_of, wait_until_up
from tests.server.test_serve import refusal
from tests.support.eventually import eventually

DAY = 86400


def link_of(api: Api, address: str) -> str:
    [message] = api.messages_to(address, 1)
    [found] = [line for line in text_of(message).splitlines() if line.startswith("http")]
    return found


def registered(api: Api) -> str:
    address = api.new_address()
    answer = api.register(address)
    assert (answer.status, answer.json()["mail"]) == (201, "folder")
    return address


def said_soon(api: Api, words: str) -> bool:
    """Whether the log has these words soon; the message is there before its line."""
    return eventually(lambda: words in api.log.read_text(), f"the log says {words!r}")


def test_a_log_tells_where_a_message_lies_and_not_its_link(api: Api) -> None:
    address = registered(api)
    link = link_of(api, address)
    for path in (api.data_dir / "mail").glob("*.eml"):
        if link.encode() in path.read_bytes():
            assert said_soon(api, f"a message is in {path}")
    log = api.log.read_text()
    assert link not in log
    assert link.rpartition("signature=")[2] not in log


@contextmanager
def in_a_terminal(folder: Path, **environment: str) -> Iterator[tuple[Api, int]]:
    """An API that writes to a terminal, and the other end of this."""
    ours, theirs = pty.openpty()
    port = free_port()
    process = start(folder, port=port, environment=environment, stderr=theirs)
    os.close(theirs)
    try:
        wait_until_up(port, process)
        yield Api(process, port, folder / "data", folder / "log"), ours
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        finally:
            os.close(ours)


def shown(terminal: int, words: str) -> str:
    """What the terminal shows, until it has these words or nothing more comes."""
    text = ""
    while words not in text and select.select([terminal], [], [], 60)[0]:
        text += os.read(terminal, 4096).decode()
    return text


def test_a_terminal_is_shown_the_link(tmp_path: Path) -> None:
    with in_a_terminal(tmp_path) as (api, terminal):
        link = link_of(api, registered(api))
        assert link in shown(terminal, link)


def test_links_are_kept_from_a_terminal_where_that_is_set(tmp_path: Path) -> None:
    with in_a_terminal(tmp_path, ERS_MAIL_LINKS="never") as (api, terminal):
        link = link_of(api, registered(api))
        text = shown(terminal, "a message is in")
        assert "a message is in" in text
        assert link not in text


def test_another_word_for_who_sees_links_is_refused(tmp_path: Path) -> None:
    said = refusal(tmp_path, environment={"ERS_MAIL_LINKS": "sometimes"})
    assert said.startswith("invalid_setting: ERS_MAIL_LINKS")


def left(folder: Path, name: str, *, days: float) -> Path:
    """A message, or what was to become one, of some days ago."""
    path = folder / name
    path.write_text("To: somebody@example.org\n\nhttps://proxy.example/reset-password/")
    when = time.time() - days * DAY
    os.utime(path, (when, when))
    return path


def test_messages_go_once_their_links_have_expired_which_a_log_has_where_that_is_set(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "data" / "mail"
    folder.mkdir(parents=True, mode=0o700)
    stays = left(folder, "6.eml", days=6.9)
    note = left(folder, "note.txt", days=30)
    before = [left(folder, "8.eml", days=7.1), left(folder, ".9.part", days=9)]
    with running_api(tmp_path, environment={"ERS_MAIL_LINKS": "always"}) as api:
        assert not any(path.exists() for path in before), "they go at the start"
        since = left(folder, "10.eml", days=10)
        assert said_soon(api, link_of(api, registered(api)))
        assert not since.exists(), "and with every message"
        assert stays.exists()
        assert note.exists()


def test_no_link_outlives_its_message() -> None:
    """What is deleted after a week is worth nothing any more."""
    # In a process of its own: the settings are the server's.
    script = (
        "import django; django.setup()\n"
        "from rest_registration.settings import registration_settings as links\n"
        "from encrypted_records.server.accounts.mail import KEPT\n"
        "from encrypted_records.server.organizations.models import INVITATION_LIFETIME\n"
        "assert KEPT >= max(links.REGISTER_VERIFICATION_PERIOD, INVITATION_LIFETIME,\n"
        "                   links.RESET_PASSWORD_VERIFICATION_PERIOD)"
    )
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "encrypted_records.server.settings",
    }
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
