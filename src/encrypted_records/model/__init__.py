"""The words of the house: frozen types that every room may use. No I/O, no keys."""
