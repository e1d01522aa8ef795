"""``ers demo`` shows the service at work, as often as it is asked to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from encrypted_records.cli.supervise.demo import Example
from encrypted_records.errors import InvalidSetting
from encrypted_records.model.definition_parser import parse_definition
from tests.support.demo import finish
from tests.support.service import Account, call, running_service

EXAMPLES = Path(__file__).parents[2] / "examples"


def look_at(shown: str) -> dict[str, str]:
    """The account that a demo says it has made, once it has shown everything."""
    assert "store 1000 records" in shown
    # grep of census.csv says the same
    assert "4 of 4 records" in shown
    assert "5 of 16 records" in shown
    assert "Traceback" not in shown
    return dict(re.findall(r"^  (account|password|device) +(\S+)", shown, re.MULTILINE))


def test_it_stores_and_searches_again_and_at_level_device_says_which_device_its_account_has(
    tmp_path: Path,
) -> None:
    with running_service(tmp_path / "data", command="demo") as service:
        first = look_at(finish(service))
    told, examples = {"ERS_ACCESS": "device"}, f"--examples={EXAMPLES}"
    with running_service(tmp_path / "data", examples, command="demo", environment=told) as service:
        said = look_at(finish(service))
        auth = Account(said["account"], said["password"], "").auth
        url = f"{service.proxy_url}/api/keyring/"
        assert call("GET", url, auth=auth).status == 401
        device = {"X-ERS-Device": said["device"]}
        assert call("GET", url, auth=auth, headers=device).status == 200
    assert said["account"] != first["account"]


def test_the_example_records_fit_their_schema() -> None:
    example = Example.load(EXAMPLES)
    definition = parse_definition((EXAMPLES / "census.schema.json").read_text())
    assert len(example.records) == 1000
    for record in example.records:
        assert definition.required <= record.keys()
        for name, value in record.items():
            assert definition.fields[name].accept(value) == value


def test_the_package_has_the_records_of_the_checkout() -> None:
    assert Example.of_the_package() == Example.load(EXAMPLES)


def test_missing_examples_are_an_error_with_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="no example data") as refused:
        Example.load(tmp_path)
    assert "--examples" in refused.value.hint
