"""Keyrings on disk: their users, their encryption, and the devices that unlocked them.

The public class is :class:`.store.Keyrings`. A keyring opens only for a :class:`.holder.Holder`,
which only ``admission`` makes. May import: ``disk``, ``process``.
"""
