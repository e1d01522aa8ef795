"""What the entries of a roster add up to, and which of them count (docs/SPEC.md, section 15.4)."""
