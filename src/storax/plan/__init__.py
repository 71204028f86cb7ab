"""Decisions: who writes which box, in which chunks, and which steps to save and to keep. Pure functions."""
