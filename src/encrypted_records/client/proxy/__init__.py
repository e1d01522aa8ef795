"""What a local proxy offers, method by method: :class:`.client.ProxyClient`.

May import: ``client.transport``, ``model``.
"""
