"""A process that has imported everything, and forks the processes of a job for each order that it reads.

So a job starts in a fraction of a second. It starts no thread and never asks JAX for its devices, so
forking is safe; the children join each other with ``jax.distributed``. The test's side is ``jobs``.
"""

from __future__ import annotations

import importlib
import json
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

# Far longer than any test: JAX ends the processes of a job when one of them is silent for so long.
_HEARTBEAT = 600


def _serve(port: int, count: int) -> int:
    """The coordination service in a process of its own: process 0, in which it usually is, may die alone."""
    ready, say = os.pipe()
    child = os.fork()
    if not child:
        from jax._src import distributed

        address = f"127.0.0.1:{port}"
        service = distributed._jax.get_distributed_runtime_service(
            address, count, heartbeat_timeout=_HEARTBEAT, shutdown_timeout=1
        )
        assert service is not None
        os.write(say, b"!")
        signal.pause()
    os.close(say)
    assert os.read(ready, 1) == b"!"
    os.close(ready)
    return child


def _child(order: dict[str, Any], index: int, port: int, report: int) -> None:
    import jax

    def say(value: Any) -> None:
        os.write(report, json.dumps(value).encode() + b"\n")

    jax.config.update("jax_num_cpu_devices", order["devices"])
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    if order["apart"]:
        from jax._src import distributed

        distributed._jax.get_distributed_runtime_service = lambda *_, **__: None
    if order["joined"]:
        jax.distributed.initialize(
            f"127.0.0.1:{port}", order["count"], index, heartbeat_timeout_seconds=_HEARTBEAT
        )
    module, _, name = order["program"].rpartition(".")
    program: Callable[..., None] = getattr(importlib.import_module(module), name)
    program(say, index, **order["arguments"])


def _fork(order: dict[str, Any], index: int, port: int, end: tuple[int, int]) -> tuple[int, int]:
    """The process id of a child, and where its words can be read. It stays until ``end`` is closed."""
    from_child, report = os.pipe()
    child = os.fork()
    if child:
        os.close(report)
        return child, from_child
    code = 1
    try:
        os.dup2(2, 1)  # what others print is no answer
        os.close(end[1])
        _child(order, index, port, report)
        code = 0
    except BaseException:
        os.write(report, json.dumps({"traceback": traceback.format_exc()}).encode() + b"\n")
    finally:
        os.close(report)
        # JAX ends the others when process 0, which has the service, leaves before them.
        os.read(end[0], 1)
        # Without the farewell of jax.distributed, for which it would wait for processes that are dead.
        os._exit(code)


def _obey(order: dict[str, Any]) -> list[dict[str, Any]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    service = _serve(port, order["count"]) if order["apart"] else 0
    held = os.pipe()
    children = [_fork(order, index, port, held) for index in range(order["count"])]
    texts: dict[int, bytes] = dict.fromkeys((fd for _, fd in children), b"")
    end = time.monotonic() + order["limit"]
    with selectors.DefaultSelector() as selector:
        for fd in texts:
            selector.register(fd, selectors.EVENT_READ)
        while selector.get_map() and (left := end - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                data = os.read(key.fd, 1 << 16)
                texts[key.fd] += data
                if not data:
                    selector.unregister(key.fd)
        silent = {key.fd for key in selector.get_map().values()}
    found = []
    for child, fd in children:
        if fd in silent:
            os.kill(child, signal.SIGKILL)
    os.close(held[0])
    os.close(held[1])
    for child, fd in children:
        status = os.waitpid(child, 0)[1]
        os.close(fd)
        said = [json.loads(line) for line in texts[fd].splitlines()]
        found.append(
            {
                "said": said,
                "overdue": fd in silent,
                "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0,
                "code": os.WEXITSTATUS(status) if os.WIFEXITED(status) else 0,
            }
        )
    if service:
        os.kill(service, signal.SIGKILL)
        os.waitpid(service, 0)
    return found


def main() -> None:
    import tests.crash.watch  # noqa: F401

    import storax.compat.checkpointers
    import storax.manager

    assert storax.load
    for module in sys.argv[1:]:
        importlib.import_module(module)
    for line in sys.stdin:
        print(json.dumps(_obey(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
