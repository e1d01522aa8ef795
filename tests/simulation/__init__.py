"""Whole proxies, the real API and the network between them in one process, run from a seed.

README.md says how; :mod:`.world` puts the pieces together.
"""
