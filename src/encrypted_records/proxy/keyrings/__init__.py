"""Keyrings on disk: their users, what encrypts them, and the devices that unlocked them.

The public class is :class:`.store.Keyrings`. A keyring opens for a :class:`.holder.Holder` and for
nothing else, and only ``admission`` makes one. May import: ``disk``, ``process``.
"""
