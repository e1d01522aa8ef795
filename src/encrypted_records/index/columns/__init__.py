"""One field of a segment: sorted keys, their pages and packing, and how they are searched.

May import: ``index.ordinals``, ``crypto``, ``model``.
"""
