"""Bytes in, bytes out: keys, value encodings and sealing, as docs/SPEC.md specifies them."""
