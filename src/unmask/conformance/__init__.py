"""Recorded decodings (`vectors`, without torch) and whether this machine repeats them (`check`)."""
