"""Segments: the index of some groups of rows, whole (mini) or in pages, built and merged.

May import: ``index.columns``, ``index.log``.
"""
