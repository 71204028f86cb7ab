"""Decisions: who writes which box, in which chunks, and which steps to save and to keep. Pure functions."""

from __future__ import annotations

from storax.plan.simulation import PlannedArray as PlannedArray
from storax.plan.simulation import Simulation as Simulation
from storax.plan.simulation import planned as planned
from storax.plan.simulation import simulate as simulate

__all__ = ["PlannedArray", "Simulation", "planned", "simulate"]
