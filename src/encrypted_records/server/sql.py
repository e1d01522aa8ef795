"""Frequent queries of requests, as SQL for both SQLite and PostgreSQL
(:class:`.db.statements.Statement`). :mod:`.records.store` queries rows and pages.

Tables are joined only so that PostgreSQL has no alternative to looking up rows by their key: it
keeps a plan that was made while the tables were empty.
"""

from __future__ import annotations

LOGIN = """
SELECT {login}, {account}
FROM accounts_login AS login JOIN accounts_user AS account ON account.id = login.user_id
WHERE login.id = :login
"""
ACCOUNT = "SELECT {account} FROM accounts_user AS account WHERE account.id = :account"
ORGANIZATIONS = """
SELECT organization_id FROM organizations_membership WHERE user_id = :account
ORDER BY organization_id
"""

#: A schema whose data a user may read, and whether the user may write it too. The ORM uses the same
#: view of rights (:class:`.datasets.models.Reach`).
_REACHED = """
JOIN reach ON reach.dataset = s.dataset_id AND (reach.schema IS NULL OR reach.schema = s.id)
WHERE s.id = :schema AND reach.member = :member
ORDER BY reach.writes DESC LIMIT 1
"""
_SCHEMA = "FROM datasets_schema AS s JOIN datasets_dataset AS d ON d.id = s.dataset_id"
_WITH_ORGANIZATION = f"""
{_SCHEMA} JOIN organizations_organization AS o ON o.id = d.organization_id
"""
REACHED = f"SELECT {{s}}, {{d}} {_SCHEMA} {_REACHED}"
REACHED_WHOLE = f"SELECT {{s}}, {{d}}, {{o}}, reach.writes {_WITH_ORGANIZATION} {_REACHED}"
LOCKED = f"SELECT {{s}}, {{d}}, {{o}} {_WITH_ORGANIZATION} WHERE s.id = :schema"

LOGGED = "SELECT version, digest FROM commit_log WHERE schema_id = :schema AND commit_id = :id"
SEGMENT = "SELECT id FROM index_segment WHERE schema_id = :schema AND uid = :uid"
GROUP = "SELECT id FROM record_group WHERE schema_id = :schema AND uid = :uid"


def _first_between(table: str, last: str, first: str) -> str:
    """The first row of a table whose span of ids overlaps the span from one id to another.

    The order of the index is stated because there is nearly always no such row, which PostgreSQL
    does not know: without it, PostgreSQL would scan the whole table, expecting to find a row soon.
    """
    return (
        f"SELECT {last} FROM {table} WHERE {last} >= :first AND {first} <= :last"  # noqa: S608
        f" ORDER BY {last} LIMIT 1"
    )


#: Separate, for the table of rows alone, which may be partitioned or distributed over several
#: servers.
ROW_BETWEEN = _first_between("record_row", "record_id", "record_id")

#: For a schema and a member: number and digest of the roster's head, 0 if there is none; the
#: member's keys, NULL for a user who is not in it; whether the schema is placed; the epoch of its
#: dataset's keys, NULL if there are none.
_SIGNER = "o.roster_number, o.roster_digest, signer.keys, place.schema IS NOT NULL, held.epoch"
_OF_SIGNER = f"""
{_WITH_ORGANIZATION}
LEFT JOIN roster_standing AS signer
    ON signer.organization_id = o.id AND signer.member = :member AND signer.present
LEFT JOIN roster_place AS place ON place.schema = s.id AND place.dataset = s.dataset_id
LEFT JOIN roster_dataset AS held ON held.dataset = s.dataset_id
"""
SIGNER = f"SELECT {_SIGNER} {_OF_SIGNER} WHERE s.id = :schema"

#: All other facts for judging a commit, under the lock of its schema's row.
COMMIT_FACTS = f"""
SELECT
    {_SIGNER},
    EXISTS (
        SELECT 1 FROM reach WHERE reach.member = :user AND reach.dataset = s.dataset_id
            AND (reach.schema IS NULL OR reach.schema = s.id) AND reach.writes
    ),
    EXISTS (SELECT 1 FROM index_segment WHERE schema_id = :schema AND uid = :segment),
    EXISTS (SELECT 1 FROM record_group WHERE schema_id = :schema AND uid = :group),
    EXISTS (SELECT 1 FROM ({_first_between("changed_row", "record_id", "record_id")}) AS changed),
    EXISTS (SELECT 1 FROM ({_first_between("row_part", "last_id", "first_id")}) AS part),
    head.counter, head.digest, logged.version, logged.digest
{_OF_SIGNER}
LEFT JOIN writer_head AS head ON head.schema_id = :schema AND head.writer = :writer
LEFT JOIN commit_log AS logged ON logged.schema_id = :schema AND logged.commit_id = :id
WHERE s.id = :schema
"""  # noqa: S608

#: The view of rights: a member can reach a dataset, or one schema of it, and perhaps write. Without
#: a roster, and for owners, this is everything; otherwise it is what a roster shares with the
#: member.
#:
#: It is a single join: for a union, SQLite first makes all rows of a member, one for each dataset.
REACH = """
CREATE VIEW reach AS
SELECT m.user_id AS member, d.id AS dataset, shared.schema, m.all_data OR shared.writes AS writes
FROM organizations_membership AS m
JOIN datasets_dataset AS d ON d.organization_id = m.organization_id
LEFT JOIN roster_shared AS shared
    ON NOT m.all_data AND shared.member = m.user_id AND shared.dataset = d.id
WHERE m.all_data OR shared.organization_id = d.organization_id
"""
