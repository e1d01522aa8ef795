"""Messages of the protocol are read from bytes as real clients send them, however they are cut."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.sql.wire import messages as m
from tests.support.listener import message, startup

#: The bytes that psql sends for a statement, and asyncpg for one with a parameter, laid out by the
#: protocol's documentation; tests with the clients themselves are in test_clients.py.
OF_PSQL = bytes.fromhex("51 0000000d 53454c454354203100")
OF_ASYNCPG = (
    bytes.fromhex("50 00000011 00 53454c45435420243100 0000")
    + bytes.fromhex("44 00000006 53 00")
    + bytes.fromhex("48 00000004")
    + bytes.fromhex("42 00000016 00 00 0001 0001 0001 00000002 0005 0001 0001")
    + bytes.fromhex("45 00000009 00 00000000")
    + bytes.fromhex("53 00000004")
)


def reader(limit: int = 1_000_000) -> m.FrontendReader:
    made = m.FrontendReader(limit)
    made.feed(startup("ada", "clinic"))
    assert made.next_first() == m.StartupMessage(0, {"user": "ada", "database": "clinic"})
    made.log_in()
    return made


def test_messages_of_psql_and_asyncpg_are_read() -> None:
    made = reader()
    made.feed(OF_PSQL + OF_ASYNCPG)
    assert made.next() == m.SimpleQuery("SELECT 1")
    assert made.next() == m.Parse("", "SELECT $1", ())
    assert made.next() == m.Describe("S", "")
    assert made.next() == m.Flush()
    assert made.next() == m.Bind("", "", (1,), (b"\0\5",), (1,))
    assert made.next() == m.Execute("", 0)
    assert made.next() == m.Sync()
    assert made.next() is None


@given(st.lists(st.integers(1, 30), max_size=40))
def test_messages_are_the_same_however_their_bytes_are_cut(cuts: list[int]) -> None:
    whole, parts = reader(), reader()
    data = OF_PSQL + OF_ASYNCPG
    whole.feed(data)
    found = []
    for cut in (*cuts, len(data)):
        parts.feed(data[:cut])
        data = data[cut:]
        while (made := parts.next()) is not None:
            found.append(made)
    assert found == [whole.next() for _ in found]
    assert whole.next() is None


@given(st.binary(max_size=200), st.booleans())
def test_nonsense_is_a_violation_of_the_protocol_and_nothing_else(data: bytes, first: bool) -> None:
    made = m.FrontendReader(1_000) if first else reader(1_000)
    made.feed(data)
    try:
        while (made.next_first() if first else made.next()) is not None:
            pass
    except m.ProtocolViolation:
        pass


@given(st.sampled_from("QPBDCEp"), st.binary(max_size=60))
def test_nonsense_inside_a_message_is_a_violation(kind: str, body: bytes) -> None:
    made = reader()
    made.feed(message(kind, body))
    with suppress(m.ProtocolViolation):
        assert made.next() is not None


@pytest.mark.parametrize("size", [-1, 3, 1_001, 2**31 - 1])
def test_a_length_outside_the_limits_is_refused_before_its_bytes_come(size: int) -> None:
    made = reader(1_000)
    made.feed(b"Q" + struct.pack("!i", size))
    with pytest.raises(m.ProtocolViolation):
        made.next()


def test_a_message_before_the_login_is_short() -> None:
    made = m.FrontendReader(1 << 24)
    made.feed(startup("ada", "clinic") + b"p" + struct.pack("!i", m.LOGIN_BYTES + 1))
    made.next_first()
    assert made.most == m.LOGIN_BYTES
    with pytest.raises(m.ProtocolViolation):
        made.next()
    made.log_in()
    assert made.most == 1 << 24


def test_counts_of_parameters_that_the_bytes_do_not_hold_are_refused() -> None:
    made = reader()
    made.feed(message("B", b"\0\0" + b"\0\0" + b"\xff\xff"))
    with pytest.raises(m.ProtocolViolation, match="bind"):
        made.next()


def test_an_old_protocol_is_refused_by_name() -> None:
    made = m.FrontendReader(1_000)
    made.feed(startup("ada", "clinic", 2 << 16))
    with pytest.raises(m.ProtocolViolation, match=r"unsupported frontend protocol 2\.0"):
        made.next_first()


def test_secrets_do_not_print() -> None:
    shown = repr(
        [m.Password("open sesame"), m.Cancel(1, b"0123"), m.Bind("", "", (), (b"x1",), ())]
    )
    assert "sesame" not in shown
    assert "0123" not in shown
    assert "x1" not in shown


def test_answers_are_those_of_the_protocol() -> None:
    assert m.ready("I") == bytes.fromhex("5a 00000005 49")
    assert m.command_complete("SELECT 1") == bytes.fromhex("43 0000000d 53454c454354203100")
    column = m.ResultColumn("n", 23, 4, -1, 0)
    described = "54 0000001a 0001 6e00 00000000 0000 00000017 0004 ffffffff 0000"
    assert m.row_description([column]) == bytes.fromhex(described)
    assert m.data_rows([[b"1", None]], 2) == [
        bytes.fromhex("44 0000000b 0001 00000001 31"),
        bytes.fromhex("44 0000000a 0001 ffffffff"),
    ]
    told = m.error_response("ERROR", "42601", "no", hint="yes")
    assert told == bytes.fromhex("45 00000023") + b"SERROR\0VERROR\0C42601\0Mno\0Hyes\0\0"
