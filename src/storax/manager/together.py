"""What the processes of a job do together besides saving: process 0 acts or decides, and tells the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from storax.processes import check_same, present


def by_process_0(about: str, act: Callable[[], Any], *, timeout: float, room: str = "saves") -> Any:
    """Lets process 0 act; all processes wait for it, and get the result or the error.

    Args:
      about: what it is, in words: a process that means something else is an error.
      act: gives something that JSON has a form for.
      timeout: seconds to wait for the others.
      room: where they meet, as for ``present``.
    """
    processes = present(timeout, room=room)
    if processes.count == 1:
        return act()

    def judge(messages: Any) -> Any:
        check_same(messages, "to do", "Call the same on all processes, in the same order.")
        return {"result": act()}

    with processes.gathering(about) as place:
        return processes.meet(f"{place}/done", {"to do": about}, judge)["result"]
