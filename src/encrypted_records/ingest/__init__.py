"""The pipeline from bytes to sealed commits: parse -> validate -> seal. No I/O."""
