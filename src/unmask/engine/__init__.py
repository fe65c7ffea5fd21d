"""Decoding: plans as data, one forward, sequences that do not depend on each other, and a ledger."""
