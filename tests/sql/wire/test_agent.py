"""An agent asks by the Model Context Protocol, with a token that only reads."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client as Agent
from mcp import StdioServerParameters
from mcp.client.stdio import stdio_client

from encrypted_records import Client
from tests.support.service import Account, Service

ARGUMENTS = ["-m", "encrypted_records", "mcp"]


def environment(running: Service, token: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {**kept, "ERS_PROXY_URL": running.proxy_url, "ERS_TOKEN": token}


def token_of(running: Service, account: Account, **limits: Any) -> str:
    with Client(running.proxy_url, email=account.email, password=account.password) as client:
        return client.create_token("agent", **limits).token


def test_an_agent_lists_describes_and_queries(
    running: Service, owner: Account, clinic: str
) -> None:
    token = token_of(running, owner, scope="read", datasets=[clinic])

    async def run() -> None:
        server = StdioServerParameters(
            command=sys.executable, args=ARGUMENTS, env=environment(running, token)
        )
        async with Agent(server) as agent:

            async def call(tool: str, **arguments: Any) -> Any:
                answer = await agent.call_tool(tool, arguments)
                assert not answer.is_error, answer
                return answer.structured_content

            tools = (await agent.list_tools()).tools
            assert {tool.name for tool in tools} == {
                "list_schemas",
                "describe_schema",
                "query",
                "why_nothing",
            }
            assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools)
            listed = await call("list_schemas")
            assert listed == {"tables": ["clinic.patient", "clinic.visit"]}
            described = await call("describe_schema", table="clinic.patient")
            assert described.keys() == {"table", "columns"}
            assert {"name": "weight", "type": "DECIMAL(6,2)"} in described["columns"]
            asked = await call("query", sql="SELECT name, weight FROM patient ORDER BY id")
            assert asked == {
                "columns": ["name", "weight"],
                "rows": [["Zoë", "61.25"], ["O'Neil", "80.50"], [None, None]],
                "more": False,
            }
            some = await call("query", sql="SELECT id FROM patient ORDER BY id", limit=2)
            assert some["rows"] == [[1], [2]]
            assert some["more"] is True
            why = await call(
                "why_nothing",
                table="patient",
                where={"field": "name", "op": "eq", "value": "zoë"},
            )
            assert why["records"] == 3
            condition = {"field": "nome", "op": "eq", "value": "zoë"}
            refused = await agent.call_tool("why_nothing", {"table": "patient", "where": condition})
            assert "/where/field: " in str(refused.content)
            for wrong in ("DELETE FROM patient", "SELECT * FROM read_text('/etc/passwd')"):
                refused = await agent.call_tool("query", {"sql": wrong})
                assert refused.is_error
                assert "root:" not in str(refused.content)

    asyncio.run(run())


@pytest.mark.parametrize("options", [[], ["--debug"]], ids=["plain", "debug"])
def test_what_an_agents_statement_found_is_not_in_the_log_that_its_host_keeps(
    running: Service, owner: Account, clinic: str, tmp_path: Path, options: list[str]
) -> None:
    token = token_of(running, owner, scope="read", datasets=[clinic])
    log = tmp_path / "log"

    async def run() -> None:
        server = StdioServerParameters(
            command=sys.executable, args=[*ARGUMENTS, *options], env=environment(running, token)
        )
        with log.open("w") as errors:
            async with Agent(stdio_client(server, errors)) as agent:
                statement = "SELECT CAST(name AS INTEGER) FROM patient"
                refused = await agent.call_tool("query", {"sql": statement})
                assert "O'Neil" in str(refused.content) or "Zoë" in str(refused.content)

    asyncio.run(run())
    written = log.read_text()
    assert "O'Neil" not in written and "Zoë" not in written, written


def test_a_token_that_writes_is_not_given_to_an_agent(running: Service, owner: Account) -> None:
    token = token_of(running, owner, scope="write")
    done = subprocess.run(
        [sys.executable, *ARGUMENTS],
        env=environment(running, token),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert "a read-only API token" in done.stderr
    assert token not in done.stderr + done.stdout
