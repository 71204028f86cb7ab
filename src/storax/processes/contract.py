"""The processes of a job, as one of them sees them; and the one that is alone."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from storax.errors import ProcessesDisagree

# Long enough for the slowest file system, short enough that a job that hangs is noticed.
DEFAULT_TIMEOUT = 600.0
# How long a job whose machines are taken away still waits for anybody: as long as it has, mostly.
DEFAULT_GRACE = 30.0
# A message names at most so many processes, or their reasons.
MOST_NAMED = 20

Message = Mapping[str, Any]
Judge = Callable[[Sequence[Message]], Message]


class Processes(Protocol):
    """The processes of a job, as one of them sees them."""

    @property
    def index(self) -> int:
        """The number of this process."""
        ...

    @property
    def count(self) -> int:
        """How many there are."""
        ...

    def gathering(self, about: str) -> contextlib.AbstractContextManager[str]:
        """Something that all processes do together, such as a save, one at a time.

        Args:
          about: what it is about, for messages. Whether it is the same on all is for ``meet`` to find out.

        Returns:
          A context manager that gives the place to meet at.

        Raises:
          ProcessFailed: the others waited for this process, and went on without it.
        """
        ...

    def meet(self, place: str, message: Message, judge: Judge) -> Message:
        """A barrier: every process hands in a message and gets the verdict on all.

        Args:
          place: names this barrier: the place of the gathering, a slash and a word of its own.
          message: of this process.
          judge: called on process 0 alone, with the messages in the order of the processes.

        Returns:
          What ``judge`` returned.

        Raises:
          ProcessFailed: some processes failed or did not come in time; names all of them.
        """
        ...

    def fail(self, place: str, error: BaseException) -> BaseException:
        """Tells the others at a barrier that this process failed, and why. Does not wait for them.

        Returns:
          What to raise: the same error, or that of process 0 if it failed before, and perhaps took
          away what this one needed.
        """
        ...


@dataclass(frozen=True, slots=True)
class Solo:
    """The only process of a job."""

    index: int = 0
    count: int = 1

    @contextlib.contextmanager
    def gathering(self, about: str) -> Iterator[str]:
        yield about

    def meet(self, place: str, message: Message, judge: Judge) -> Message:
        return judge([message])

    def fail(self, place: str, error: BaseException) -> BaseException:
        return error


def wait_for_all(processes: Processes, about: str) -> None:
    """A barrier and nothing else.

    Args:
      processes: of the job.
      about: what they meet for; if they mean different things, that is an error.

    Raises:
      ProcessFailed, ProcessesDisagree: as for ``meet``.
    """
    with processes.gathering(about) as place:
        processes.meet(f"{place}/here", {"for": about}, _agree)


def _agree(messages: Sequence[Message]) -> Message:
    check_same(messages, "for", "Call the same on all processes.")
    return {}


def check_same(messages: Sequence[Message], what: str, advice: str) -> None:
    """Raises ``ProcessesDisagree`` unless all processes handed in the same.

    Args:
      messages: in the order of the processes.
      what: of each message, its entry that says in words what it means.
      advice: how they come to mean the same.
    """
    groups: dict[str, list[int]] = {}
    for index, message in enumerate(messages):
        groups.setdefault(json.dumps(message, sort_keys=True), []).append(index)
    if len(groups) > 1:
        each = [
            f"{named(indices)} {'means' if len(indices) == 1 else 'mean'} {messages[indices[0]][what]}"
            for indices in list(groups.values())[:MOST_NAMED]
        ]
        raise ProcessesDisagree(f"the processes do not mean the same: {'; '.join(each)}. {advice}")


def named(indices: Sequence[int]) -> str:
    """``process 3``, or ``processes 1, 3``: as messages name them."""
    if len(indices) == 1:
        return f"process {indices[0]}"
    more = f" and {len(indices) - MOST_NAMED} more" if len(indices) > MOST_NAMED else ""
    return f"processes {', '.join(map(str, indices[:MOST_NAMED]))}{more}"
