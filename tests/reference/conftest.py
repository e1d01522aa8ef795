"""The property tests here run under the profiles of the core."""

from tests.reference import profiles

__all__ = ["profiles"]
