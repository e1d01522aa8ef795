"""Uploads that have not become records yet: sealed files that grow frame by frame.

The public class is :class:`.spool.Spool`. May import: ``disk``.
"""
