"""Deletion of one's account: what goes, what stays, what is in the way."""

from __future__ import annotations

import hashlib
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from encrypted_records.model import ids, wire
from encrypted_records.model import roster as form
from tests.server.api import PASSWORD, Account, Answer, Api, basic, running_api
from tests.server.overtaking import until_one_waits
from tests.server.rosters import Person, found, put_answer, share, standing
from tests.server.sessions import NEW_PASSWORD, session_of
from tests.server.test_organizations import emails, invite, join
from tests.server.test_roster_members import make_owner
from tests.server.test_second_factor import add

PATH = "/api/accounts/delete/"


@pytest.fixture
def account(api: Api) -> Account:
    return api.new_account()


@pytest.fixture
def owner(api: Api) -> Account:
    return api.new_account()


def delete(account: Account, **members: Any) -> Answer:
    return account.call("POST", PATH, {"password": PASSWORD} | members)


def outcomes(account: Account) -> dict[str, tuple[str, bool]]:
    listed = account.call("GET", PATH).json()["organizations"]
    return {one["organization"]: (one["outcome"], one["signed"]) for one in listed}


def registered(api: Api, address: str, sent: int) -> dict[str, str]:
    """Credentials of a new account with an address to which that many messages went before."""
    api.register(address, NEW_PASSWORD, organization_name="Again")
    signed = api.signed(address, sent + 1)
    assert api.call("POST", "/api/accounts/verify-registration/", signed).status == 200
    return basic(address, NEW_PASSWORD)


@pytest.mark.both_databases
def test_all_that_lets_in_ends_at_once(api: Api, account: Account) -> None:
    token = account.post("/api/tokens/", {"name": "report", "password": PASSWORD})["token"]
    ways = [basic(account.email, PASSWORD), session_of(api, account.email)]
    ways += [{"Authorization": f"Bearer {one}"} for one in (token, account.token)]
    for headers in ways:
        assert api.call("GET", "/api/users/self/", headers=headers).status == 200
    assert delete(account).status == 200
    for headers in ways:
        assert api.call("GET", "/api/users/self/", headers=headers).status == 401
    assert api.token_pair(account.email, PASSWORD).status == 401
    assert api.messages_to(account.email, 1)[-1]["Subject"] == "Your account is deleted"


def test_a_job_that_runs_is_told_that_its_token_is_revoked(
    api: Api, account: Account, owner: Account
) -> None:
    join(owner, account)
    manifest = f"{owner.new_schema()['url']}manifest/"
    entered = {"digest": hashlib.sha256(b"of the job").hexdigest()}
    assert account.call("POST", f"/api/jobs/{uuid.uuid4()}/token/", entered).status == 204
    job = {"Authorization": "Job of the job"}
    assert api.call("GET", manifest, headers=job).status == 200
    assert delete(account).status == 200
    assert api.call("GET", manifest, headers=job).code == "job_revoked"


def test_it_takes_the_password_and_a_code_and_no_token(api: Api, account: Account) -> None:
    token = account.post("/api/tokens/", {"name": "report", "password": PASSWORD})["token"]
    bearer = {"Authorization": f"Bearer {token}"}
    assert api.call("POST", PATH, {"password": PASSWORD}, headers=bearer).status == 403
    assert account.call("POST", PATH, {}).flaws() == {"/password": "required"}
    assert delete(account, password="wrong").flaws() == {"/password": "wrong_password"}
    app, _ = add(account)
    assert delete(account).flaws() == {"/code": "second_factor_required"}
    assert delete(account, code=app.stale()).flaws() == {"/code": "wrong_code"}
    assert delete(account, code=app.code()).status == 200


@pytest.mark.both_databases
@pytest.mark.parametrize("way", ["app", "recovery"])
def test_a_deletion_that_is_refused_uses_no_code_up(
    account: Account, owner: Account, way: str
) -> None:
    membership = join(owner, account)
    app, codes = add(owner)
    code = app.code() if way == "app" else codes[0]
    for _ in range(2):
        refused = delete(owner, code=code)
        assert (refused.status, refused.code) == (409, "last_owner")
    assert delete(owner, code=app.stale()).flaws() == {"/code": "wrong_code"}
    assert owner.call("PATCH", membership, {"role": "owner"}).status == 200
    assert delete(owner, code=code).status == 200


def test_nothing_personal_is_left_in_the_database(tmp_path: Any) -> None:
    with running_api(tmp_path) as api:
        account, owner = api.new_account(), api.new_account()
        join(owner, account)
        invite(owner, account.email, role="member")
        app, _ = add(account)
        assert delete(account, code=app.code()).status == 200
        api.execute("VACUUM")
        api.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        held = b"".join(file.read_bytes() for file in (api.data_dir / "api").glob("db.sqlite3*"))
        assert owner.email.encode() in held
        assert account.email.encode() not in held


def test_an_organization_of_nobody_else_goes_with_the_account(
    api: Api, account: Account, owner: Account
) -> None:
    join(owner, account)
    assert outcomes(account) == {
        account.organization: ("delete", False),
        owner.organization: ("leave", False),
    }
    assert delete(account).status == 200
    assert emails(owner, owner.organization) == {owner.email: "owner"}


def test_the_last_owner_with_others_is_refused_by_name(account: Account, owner: Account) -> None:
    membership = join(owner, account)
    slug = owner.call("GET", owner.organization).json()["slug"]
    assert outcomes(owner) == {owner.organization: ("last_owner", False)}
    refused = delete(owner)
    assert (refused.status, refused.code) == (409, "last_owner")
    assert slug in refused.json()["detail"]
    owner.call("PATCH", membership, {"role": "owner"})
    assert delete(owner).status == 200
    assert emails(account, owner.organization) == {account.email: "owner"}


def test_data_that_nobody_else_has_is_in_the_way(account: Account) -> None:
    dataset = account.new_dataset()["url"]
    refused = delete(account)
    assert (refused.status, refused.code) == (409, "has_datasets")
    assert account.call("DELETE", dataset).status == 204
    assert delete(account).status == 200


@pytest.mark.both_databases
def test_what_was_made_stays_and_the_log_names_an_id(account: Account, owner: Account) -> None:
    join(owner, account)
    made = account.post("/api/datasets/", {"name": "Theirs", "organization": owner.organization})[
        "url"
    ]
    me = account.call("GET", "/api/users/self/").json()["url"]
    assert delete(account).status == 200
    assert owner.call("GET", made).status == 200
    entries = owner.call("GET", f"{owner.organization}audit-log/").json()["results"]
    own = [entry for entry in entries if entry["user"] == me]
    assert {"account.deleted", "dataset.created"} <= {entry["action"] for entry in own}
    assert {entry["email"] for entry in own} == {None}


def test_who_registers_the_address_again_gains_nothing(
    api: Api, account: Account, owner: Account
) -> None:
    join(owner, account)
    other = api.new_account()
    invite(other, account.email)
    before = account.call("GET", "/api/users/self/").json()["id"]
    sent = len(api.messages_to(account.email, 2))
    assert delete(account).status == 200
    api.messages_to(account.email, sent + 1)
    again = registered(api, account.email, sent + 1)
    me = api.call("GET", "/api/users/self/", headers=again).json()
    assert me["id"] != before
    for organization in (owner.organization, account.organization):
        assert organization not in me["organizations"]
        assert api.call("GET", organization, headers=again).status == 404
    assert api.call("GET", "/api/invitations/", headers=again).json()["count"] == 0


def test_links_that_were_sent_end_with_the_account(api: Api, account: Account) -> None:
    api.call("POST", "/api/accounts/send-reset-password-link/", {"email": account.email})
    reset = api.signed(account.email) | {"password": NEW_PASSWORD}
    assert delete(account).status == 200
    assert api.call("POST", "/api/accounts/reset-password/", reset).code == "invalid_link"


def test_a_signed_member_leaves_first_or_says_that_the_keys_are_lost(api: Api) -> None:
    ring = found(api.new_account())
    dataset = ring.owner.account.new_dataset()
    ring.begin(dataset)
    grace, eve = Person(api.new_account()), Person(api.new_account())
    for person in (grace, eve):
        ring.join(person, [share(dataset)])
    assert outcomes(grace.account)[ring.owner.account.organization] == ("leave", True)
    refused = delete(grace.account)
    assert (refused.status, refused.code) == (409, "in_roster")
    ring.add(ring.follow(ring.sign(form.Remove(grace.uid), by=grace)), by=grace)
    assert delete(grace.account).status == 200

    assert delete(eve.account, unsigned=True).status == 200
    owner = ring.owner.account
    assert emails(owner, owner.organization) == {owner.email: "owner"}
    # The roster has eve until an owner signs otherwise; no entry gives the account access again.
    member = ring.verified.member(eve.uid)
    assert member is not None
    assert member.present
    ring.add(ring.follow(ring.sign(form.Remove(eve.uid))))


def test_a_deleted_account_that_is_still_in_the_roster_is_no_owner_who_is_left(api: Api) -> None:
    ring = found(api.new_account())
    grace, eve = Person(api.new_account()), Person(api.new_account())
    ring.join(grace)
    ring.add(ring.follow(ring.sign(standing(grace, role=form.OWNER))))
    make_owner(api, ring, eve)  # the roster does not say so
    owner = ring.owner.account
    assert outcomes(owner) == {owner.organization: ("leave", True)}
    assert delete(grace.account, unsigned=True).status == 200
    assert outcomes(owner) == {owner.organization: ("last_owner", True)}
    assert delete(owner, unsigned=True).code == "last_owner"


def test_whoever_answered_an_invitation_is_admitted_no_more(api: Api) -> None:
    ring = found(api.new_account())
    ring.begin(dataset := ring.owner.account.new_dataset())
    grace = Person(api.new_account())
    invited = ring.invite(grace, [share(dataset)])
    assert put_answer(grace, ring.answer(grace, invited), invited.path).status == 201
    assert delete(grace.account).status == 200
    owner = ring.owner.account
    answers = owner.call("GET", f"{owner.organization}answers/")
    assert list(wire.decode(answers.body)) == []


@pytest.mark.both_databases
def test_an_account_that_is_deleted_while_it_joins_is_in_or_gone(api: Api, owner: Account) -> None:
    for _ in range(6):
        account = api.new_account()
        invite(owner, account.email)
        [waiting] = account.call("GET", "/api/invitations/").json()["results"]
        path = f"/api/invitations/{waiting['id']}/accept/"
        with ThreadPoolExecutor(2) as pool:
            joining = pool.submit(account.call, "POST", path)
            deleting = pool.submit(delete, account)
            joined, deleted = joining.result(), deleting.result()
        assert deleted.status in (200, 409), deleted.body
        assert joined.status in (201, 401, 404), joined.body
        members = emails(owner, owner.organization)
        if deleted.status == 200:
            assert set(members) == {owner.email}
        else:
            assert account.email in members
            assert delete(account).status == 200


@pytest.mark.both_databases
def test_an_account_that_is_deleted_twice_at_once_is_deleted_once(api: Api) -> None:
    account = api.new_account()
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda _: delete(account).status, range(2)))
    assert 200 in answers
    assert set(answers) <= {200, 400, 401}


@pytest.mark.parametrize("way", ["app", "recovery"])
def test_a_refused_deletion_gives_no_code_back_that_ended_meanwhile(
    api: Api, account: Account, owner: Account, way: str
) -> None:
    join(owner, account)
    app, codes = add(owner)
    uid = ids.from_text(owner.call("GET", "/api/users/self/").json()["id"])
    assert api.database_url is not None
    code, ended = (app.code(), app.code()) if way == "app" else (codes[0], codes[0])
    with psycopg.connect(api.database_url) as first, ThreadPoolExecutor(1) as pool:
        first.execute("SELECT 1 FROM accounts_user WHERE id = %s FOR UPDATE", (uid,))
        refused = pool.submit(delete, owner, code=code)
        until_one_waits(api.database_url, refused.done)
        # As if the app's later code was used, and new recovery codes were made.
        first.execute("UPDATE second_factor SET step = step + 1 WHERE user_id = %s", (uid,))
        first.execute("DELETE FROM recovery_code WHERE user_id = %s", (uid,))
        for number in range(len(codes)):
            new = hashlib.sha256(b"%d" % number + uid).digest()
            first.execute("INSERT INTO recovery_code VALUES (%s, %s)", (new, uid))
        first.commit()
        assert (refused.result().status, refused.result().code) == (409, "last_owner")
    assert delete(owner, code=ended).flaws() == {"/code": "wrong_code"}
