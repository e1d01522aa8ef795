"""Bulk data that is too large for the database: parts of groups and segments, each part an object.

:mod:`.stores` has the interface of a store of objects and a store of files, :mod:`.s3` a store in a
bucket; :mod:`.choice` selects by the URL. :mod:`.layout` is the format of an object,
:mod:`.objects` its life cycle as a row of the database, :mod:`.parts` its content for readers.
:mod:`.block_cache` caches blocks of a remote store, and :mod:`.cache_files` registers these caches.

May import: ``server.records``.
"""
