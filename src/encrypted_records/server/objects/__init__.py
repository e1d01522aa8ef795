"""Bulk data that is too large for the database: parts of groups and segments, each part an object.

:mod:`.stores` has the interface of a store of objects and one that keeps files, :mod:`.s3` one of a
bucket; :mod:`.choice` selects by the URL. :mod:`.layout` is the format of an object,
:mod:`.objects` its life cycle as a row of the database, :mod:`.parts` the content of each object
for readers. :mod:`.block_cache` keeps copies of what is far away, and :mod:`.cache_files` knows who
keeps some.

May import: ``server.records``.
"""
