"""``ers demo`` shows the service at work, as often as it is asked to."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from encrypted_records.cli.demo import Example
from encrypted_records.errors import InvalidSetting
from encrypted_records.model.definition_parser import parse_definition
from tests.support.service import Service, running_service

EXAMPLES = Path(__file__).parents[2] / "examples"


def finish(service: Service) -> str:
    """What this run of the demo has said once it is through."""
    deadline = time.monotonic() + 120
    while "goes on running" not in (said := service.log.rpartition("is ready")[2]):
        assert service.process.poll() is None, service.log
        assert time.monotonic() < deadline, service.log
        time.sleep(0.1)
    return said


def test_it_stores_searches_and_can_be_repeated(tmp_path: Path) -> None:
    accounts = set()
    for _ in range(2):
        with running_service(
            tmp_path / "data", f"--examples={EXAMPLES}", command="demo"
        ) as service:
            shown = finish(service)
        assert "store 1000 records" in shown
        # grep of census.csv says the same
        assert "4 of 4 records" in shown
        assert "5 of 16 records" in shown
        assert "Traceback" not in shown
        accounts.update(re.findall(r"demo-\w+@example\.org", shown))
    assert len(accounts) == 2


def test_the_example_records_fit_their_schema() -> None:
    example = Example.load(EXAMPLES)
    definition = parse_definition((EXAMPLES / "census.schema.json").read_text())
    assert len(example.records) == 1000
    for record in example.records:
        assert definition.required <= record.keys()
        for name, value in record.items():
            assert definition.fields[name].accept(value) == value


def test_missing_examples_are_an_error_with_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="no example data") as refused:
        Example.load(tmp_path)
    assert "--examples" in refused.value.hint
