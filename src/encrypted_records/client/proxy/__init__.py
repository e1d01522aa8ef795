"""The interface of a local proxy, method by method: :class:`.client.ProxyClient`.

May import: ``client.transport``, ``model``.
"""
