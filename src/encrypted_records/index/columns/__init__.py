"""Columns: one field of a segment as sorted keys, with their pages, packing and search.

May import: ``index.ordinals``, ``crypto``, ``model``.
"""
