"""Members come by invitation, change and go, by e-mail; owners see who did what."""

from __future__ import annotations

import pytest

from tests.cli.command import Ers, environment
from tests.support.service import Account, Service

ORGANIZATION = ("organization", "member", "list")


@pytest.fixture
def owner(running: Service) -> Account:
    return running.new_account()


@pytest.fixture
def guest(running: Service) -> Account:
    return running.new_account()


def test_a_member_is_invited_accepts_is_promoted_and_removed(
    ers: Ers, running: Service, owner: Account, guest: Account
) -> None:
    ers.set(**environment(running, owner))
    organization = ers.done("organization", "get").one
    sent = ers.done("organization", "invitation", "create", guest.email).one
    assert ers.done("organization", "invitation", "list").one["id"] == sent["id"]

    ers.set(**environment(running, guest))
    mine = ers.done("organization", "invitation", "list", "--mine").one
    assert mine["id"] == sent["id"]
    ers.done("organization", "invitation", "accept", mine["id"])
    ambiguous = ers("organization", "get")
    assert (ambiguous.code, organization["slug"] in ambiguous.err) == (2, True)

    ers.set(**environment(running, owner))
    assert {(line["email"], line["role"]) for line in ers.done(*ORGANIZATION).lines} == {
        (owner.email, "owner"),
        (guest.email, "member"),
    }
    change = ("organization", "member", "update", guest.email.upper(), "--role", "owner")
    assert ers.done(*change).one["role"] == "owner"
    assert ers("organization", "member", "delete", guest.email).code == 2
    ers.done("organization", "member", "delete", guest.email, "--yes")
    assert [line["email"] for line in ers.done(*ORGANIZATION).lines] == [owner.email]
    assert ers("organization", "member", "delete", guest.email, "--yes").code == 3


def test_an_invitation_is_withdrawn_or_declined(
    ers: Ers, running: Service, owner: Account, guest: Account
) -> None:
    for who in (owner, guest):
        ers.set(**environment(running, owner))
        sent = ers.done("organization", "invitation", "create", guest.email).one
        ers.set(**environment(running, who))
        ers.done("organization", "invitation", "delete", sent["id"])
        assert ers("organization", "invitation", "delete", sent["id"]).code == 3


def test_the_audit_log_can_be_asked_for_one_action(
    ers: Ers, running: Service, owner: Account
) -> None:
    ers.set(**environment(running, owner))
    ers.done("dataset", "create", "--name", "Medical")
    said = ers.done("organization", "audit-log", "--action", "dataset.created")
    assert said.one["email"] == owner.email
    assert len(ers.done("organization", "audit-log").lines) > 1


def test_the_audit_log_is_asked_for_what_one_person_did_also_after_they_left(
    ers: Ers, running: Service, owner: Account
) -> None:
    guest = running.new_account()
    ers.set(**environment(running, owner))
    sent = ers.done("organization", "invitation", "create", guest.email).one
    ers.set(**environment(running, guest))
    ers.done("organization", "invitation", "accept", sent["id"])
    ers.set(**environment(running, owner))
    ask = ("organization", "audit-log", "--user", guest.email.upper())
    assert {line["email"] for line in ers.done(*ask).lines} == {guest.email}
    ers.done("organization", "member", "delete", guest.email, "--yes")
    assert {line["email"] for line in ers.done(*ask).lines} == {guest.email}
    assert ers.done(*ask, "--without", "member.joined").lines == []
    assert ers.done(*ask, "--until", "2020-01-01").lines == []
    assert ers("organization", "audit-log", "--user", "nobody@example.org").code == 3
    assert ers("organization", "audit-log", "--until", "soon").code == 2
