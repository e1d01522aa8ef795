"""Admission: the right to use a keyring here.

The API says who a caller is. Whether that person's keys are used for a request is decided by this
proxy alone: by its level (``keyrings.policy``), by the devices that it has taken in
(``keyrings.enrolment``), and, where keys go out or change, by a proof in that very request
(:mod:`.proof`). Only :mod:`.admission` makes a ``Holder``, and keyrings open for nothing else.

May import: ``auth``, ``disk``, ``process``, ``keyrings``.
"""
