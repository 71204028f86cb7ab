"""The other format: a header, and one row-major run of bytes per tensor."""
