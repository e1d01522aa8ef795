"""The interface of a local proxy, method by method: :class:`.client.ProxyClient`.

May import: ``client.api`` and its imports, ``model``, and in :mod:`.sql` ``sql``.
"""
