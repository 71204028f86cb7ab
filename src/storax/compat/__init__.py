"""Orbax-shaped doors onto the rooms of storax, and nothing else."""
