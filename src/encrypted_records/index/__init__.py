"""The sealed index: columns, segments, the commit ledger, and answering predicates. Pure."""
