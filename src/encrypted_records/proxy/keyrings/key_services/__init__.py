"""Services that keep a key and never show it: they encrypt the key of the keyrings, 32 bytes.

A file in the proxy's folder holds the ciphertext; a start asks the service once to decrypt it. Each
service binds the ciphertext to the purpose. A module per service; :mod:`.service` says what they
have in common, and :mod:`.configured` which of them the environment names.
"""
