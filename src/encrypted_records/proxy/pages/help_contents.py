"""The order of the documents: of the pages under /help/ and of the site that ``make docs`` builds.

A document's name follows from its path: ``docs/how-to/back-up.md`` is ``how-to-back-up``.
"""

from __future__ import annotations

#: Heading -> the names of documents, each with its title and what to expect there.
CONTENTS: dict[str, dict[str, tuple[str, str]]] = {
    "Read these five pages first": {
        "quickstart": (
            "Start",
            ("install it, and try it in the browser, with commands and with curl"),
        ),
        "my-data": ("Your data", "store your own file, search it, and bring in the next one"),
        "how-to-invite-a-colleague": ("Your team", "share datasets with colleagues and programs"),
        "production": ("Production", "from a wheel to a service for others"),
        "concepts-leaks": (
            "What leaks",
            ("what the server can learn, in plain words, with an attack"),
        ),
    },
    "How to": {
        "readme": ("About", "the product on one screen"),
        "tutorial": ("Tutorial", "from a CSV of patients to a search in ten minutes"),
        "how-to-join-a-team": ("Join a team", "what to do as an invited colleague"),
        "how-to-move-to-a-new-machine": ("Move to a new machine", "take your keyring with you"),
        "how-to-lose-a-disk": ("Lose a disk", "what is left, and how to recover it"),
        "how-to-back-up": ("Back up", "keyring, data folder and database"),
        "how-to-mirror": ("Mirror", "a copy that needs no trust, to read from anywhere"),
        "how-to-query-from-other-tools": (
            "Query from other tools",
            "psql, DBeaver, Metabase, Grafana, dbt, pandas, an agent",
        ),
        "how-to-follow-changes": (
            "Follow changes",
            "keep a copy, a warehouse or a search engine up to date",
        ),
        "upgrading": ("Upgrade", "from one version to the next"),
        "how-to-change-a-schema": (
            "Change a schema",
            ("which changes are possible, and what they require"),
        ),
    },
    "Concepts": {
        "concepts-searching": ("Searching what is encrypted", "how, in three pictures"),
        "concepts-keys": ("Keys", "the keyring, its versions, and what it decrypts"),
        "concepts-organizations": ("Organizations", "who can send requests, and who can read"),
        "concepts-teams": (
            "Teams and their keys",
            "a signed member list, and a key for each dataset",
        ),
        "concepts-glossary": ("Glossary", "the terms of code and specification"),
        "performance": ("How fast", "what was measured, with charts"),
        "scale": ("How it grows", "what is bounded for many records, and what is missing"),
        "comparison": ("Compared with others", "what each of them does better"),
    },
    "Reference": {
        "web-ui": ("The web interface", "what each page does, and how little it leaves behind"),
        "cli": ("The command line", "every command with every option"),
        "python": ("From Python", "storing and searching from a program"),
        "sql": ("SQL", "joins, windows and groups over records that the server cannot read"),
        "http-api": ("The HTTP API", "every endpoint of API and proxy"),
        "errors": ("Errors", "every code, its meaning and what to do"),
        "operations": ("Operations", "settings, backups, restoring, sizes"),
        "tus": ("Resumable uploads", "the supported parts of the protocol"),
        "spec": ("Specification", "every byte of keys, encryption, index and log"),
        "security": ("Security", "what is protected, and what is not"),
        "leakage": ("Who learns what", "what the server can find out all the same"),
        "threat-model": ("Threat model", "possible attackers, and what stops them"),
    },
    "The project": {
        "architecture": ("Architecture", "the parts of the program, and the path of a record"),
        "contributing": ("Contributing", "what a change must fulfil"),
        "changelog": ("Changes", "what is new"),
    },
}
#: The heading of what was decided; its documents need no title here.
DECISIONS = "Decisions"
IS_DECISION = "decisions-"

TITLES: dict[str, tuple[str, str]] = {
    name: title for section in CONTENTS.values() for name, title in section.items()
}


def name_of(relative: str) -> str:
    """A document's name from its path in the project."""
    stem = relative.removeprefix("docs/").removesuffix(".md")
    return stem.replace("/", "-").replace("_", "-").lower()
