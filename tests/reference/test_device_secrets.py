"""The package's device secrets are those of the specification."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.model import credentials
from tests.reference import devices

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "devices.json").read_text())


@pytest.mark.parametrize("case", VECTORS["good"], ids=lambda case: case["id"])
def test_a_secret_has_its_digest_page_and_answers(case: dict[str, Any]) -> None:
    found = credentials.parse_device_secret(case["secret"])
    assert found is not None
    assert found.id == case["id"]
    assert found.digest.hex() == case["digest"]
    assert found.page == case["page"]
    for one in case["answers"]:
        answer = credentials.challenge_answer(found.digest, one["nonce"], one["host"])
        assert answer == one["answer"]


@pytest.mark.parametrize("case", VECTORS["bad"], ids=lambda case: case["why"])
def test_what_has_another_form_is_no_secret(case: dict[str, str]) -> None:
    assert credentials.parse_device_secret(case["text"]) is None
    # Behind a password it belongs to the password.
    assert credentials.split_password(f"pass:{case['text']}") == (f"pass:{case['text']}", None)


def test_a_secret_that_is_made_now_is_one_and_does_not_print() -> None:
    made = credentials.generate_device_secret()
    assert credentials.parse_device_secret(made.text) == made
    assert made.page == devices.page(made.text)
    assert made.text not in repr(made)
    assert credentials.generate_device_secret().text != made.text


@given(password=st.text(max_size=30), email=st.text(alphabet="ab@.", max_size=10))
def test_a_secret_behind_a_password_is_cut_off_and_nothing_else_is(
    password: str, email: str
) -> None:
    made = credentials.generate_device_secret()
    assert credentials.split_password(f"{password}:{made.text}") == (password, made)
    plain = "Basic " + base64.b64encode(f"{email}:{password}".encode()).decode()
    shown = "Basic " + base64.b64encode(f"{email}:{password}:{made.text}".encode()).decode()
    assert credentials.without_device(shown) == plain
    assert credentials.without_device(plain) == plain


@pytest.mark.parametrize("value", ["Bearer abc", ""])
def test_other_authorization_values_stay_as_they_are(value: str) -> None:
    assert credentials.without_device(value) == value


@pytest.mark.parametrize("value", ["Basic !!!", "Basic ", "Basic /w=="])
def test_nothing_is_left_of_basic_credentials_that_cannot_be_read(value: str) -> None:
    assert credentials.without_device(value) == ""
