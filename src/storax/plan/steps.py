"""What policies know about a step, and what they say about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Step:
    """A committed step.

    Attributes:
      step: its number.
      time: when its save began, in seconds since 1970.
      metrics: those saved with it, or None.
    """

    step: int
    time: float = 0.0
    metrics: Mapping[str, Any] | None = field(default=None, hash=False)


@dataclass(frozen=True, slots=True)
class Decision:
    """Yes or no, and why.

    Example:
      >>> bool(Decision(False, "3 is not a multiple of 2"))
      False
    """

    yes: bool
    reason: str

    def __bool__(self) -> bool:
        return self.yes


def any_of(decisions: list[Decision]) -> Decision:
    """Yes if one says yes. The reasons of those that say yes, else of all."""
    said = [decision for decision in decisions if decision] or decisions
    reason = "; ".join(dict.fromkeys(decision.reason for decision in said))
    return Decision(any(decisions), reason or "there is no rule")
