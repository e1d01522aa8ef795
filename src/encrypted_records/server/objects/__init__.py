"""Bulk data that is too large for the database: parts of groups and segments, each part an object.

:mod:`.protocol` defines the interface of an object store; :mod:`.files` and :mod:`.s3` implement
it, and :mod:`.choice` selects one by its URL. :mod:`.layout` is the format of an object,
:mod:`.objects` its life cycle as a row of the database, :mod:`.parts` the content of each object.

May import: ``server.records``.
"""
