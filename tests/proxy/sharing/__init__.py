"""Sharing: proxies of several people at one API."""
