"""Bytes under keys: files, the commit, and how many bytes may be in flight. Knows nothing of arrays."""
