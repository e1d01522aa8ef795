"""How many examples property tests try, everywhere: ``tests/conftest.py`` loads this.

Every profile is bounded, and none fails for being slow on a shared machine. ``suite`` tries the
same examples in every run, so that a run fails for what was changed and not by luck. Others are
drawn anew by ``HYPOTHESIS_PROFILE=dev``; ``thorough`` is for a quiet evening, and ``fuzz`` is
what ``make fuzz`` repeats until its time is over.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

_SLOW = [HealthCheck.too_slow]
_STEADY = "suite"
#: Hypothesis's own name for what tells whether a module's constants count.
_CHOOSES = "is_local_module_file"

settings.register_profile(
    _STEADY, deadline=None, max_examples=30, derandomize=True, suppress_health_check=_SLOW
)
settings.register_profile("dev", deadline=None, max_examples=60, suppress_health_check=_SLOW)
settings.register_profile("thorough", deadline=None, max_examples=2000)
settings.register_profile("fuzz", deadline=None, max_examples=50)

_chosen = os.environ.get("HYPOTHESIS_PROFILE", _STEADY)
settings.load_profile(_chosen)
if _chosen == _STEADY:
    # Examples also have constants of the modules that were loaded by then. Which these are depends
    # on the tests that ran before in the same process.
    setattr(providers, _CHOOSES, lambda _path: False)
