"""Resumable uploads (TUS 1.0.0): the protocol, the receiver, and the stored state of uploads.

The public class is :class:`.service.UploadService`; :mod:`.tus` does no I/O. May import: ``disk``,
``http``, ``keyrings``, ``spool``, ``jobs``, ``retention``.
"""
