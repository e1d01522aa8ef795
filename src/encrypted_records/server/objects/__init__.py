"""Bulk data that is too large for the database: parts of groups and segments, each part an object.

:mod:`.stores` has the interface of a store of objects, a store of files, and the choice of a store
by the URL; :mod:`.s3` is a store in a bucket. :mod:`.layout` is the format of an object,
:mod:`.objects` its life cycle as a row of the database, :mod:`.parts` its content for readers.
:mod:`.block_cache` caches blocks of a remote store, and :mod:`.cache_files` registers these caches.

May import: ``server.records``.
"""
