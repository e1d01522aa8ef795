"""Resumable uploads (TUS 1.0.0): the protocol, what is received, and what is known of each.

The public class is :class:`.service.UploadService`; :mod:`.tus` does no I/O. May import: ``disk``,
``http``, ``keyrings``, ``spool``, ``jobs``.
"""
