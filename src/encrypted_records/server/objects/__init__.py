"""Bulk data that is too large for the database: parts of groups and segments, each an object.

:mod:`.protocol` says what a store of objects does; :mod:`.files` and :mod:`.s3` do it, and
:mod:`.choice` takes one by its URL. :mod:`.layout` is how an object looks inside, :mod:`.objects`
the life of each as a row of the database, :mod:`.parts` what lies in which object.

May import: ``server.records``.
"""
