"""How many examples the property tests of the core try; loaded by each folder's conftest.

Both profiles are bounded, and neither fails for being slow on a shared machine. In CI the examples
are the same in every run. ``HYPOTHESIS_PROFILE`` chooses, ``thorough`` is for a quiet evening, and
``fuzz`` is what ``make fuzz`` repeats with other examples until its time is over.
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("ci", deadline=None, max_examples=60, derandomize=True)
settings.register_profile("dev", deadline=None, max_examples=60)
settings.register_profile("thorough", deadline=None, max_examples=2000)
settings.register_profile("fuzz", deadline=None, max_examples=50)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if "CI" in os.environ else "dev"))
