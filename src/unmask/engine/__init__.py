"""Decoding: plans as data, one forward, rows that do not depend on each other, and a ledger."""
