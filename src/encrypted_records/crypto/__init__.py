"""Keys, value encodings and sealing on bytes, without I/O, as docs/SPEC.md specifies them."""
