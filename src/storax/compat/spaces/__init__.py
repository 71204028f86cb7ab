"""Modules that code for Orbax looks into, each a list of names that live elsewhere."""
