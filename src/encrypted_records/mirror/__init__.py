"""Mirrors: copies of an API's data, which need no trust (docs/how-to/mirror.md).

A mirror holds the log, the roster, grants and sealed bytes as the API returns them, and no keys. A
reader verifies them against the signed log, as it does with an API's answers.

May import: ``client``, ``index``, ``crypto``, ``listening``, ``http``, ``model``, and of ``proxy``
only ``auth`` and ``disk``.
"""
