"""The Python client: objects for datasets, schemas and records, on an event loop or without one.

The public classes are :class:`.async_client.AsyncClient` and :class:`.sync_client.Client`. May
import: ``client.proxy``.
"""
