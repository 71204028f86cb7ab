"""The processes of one job, and how they agree. The only door to ``jax.distributed``."""

from storax.processes.contract import DEFAULT_GRACE as DEFAULT_GRACE
from storax.processes.contract import DEFAULT_TIMEOUT as DEFAULT_TIMEOUT
from storax.processes.contract import Judge as Judge
from storax.processes.contract import Message as Message
from storax.processes.contract import Processes as Processes
from storax.processes.contract import Solo as Solo
from storax.processes.contract import check_same as check_same
from storax.processes.contract import named as named
from storax.processes.contract import wait_for_all as wait_for_all
from storax.processes.joined import Attendance as Attendance
from storax.processes.joined import Joined as Joined
from storax.processes.joined import Service as Service
from storax.processes.running import present as present
from storax.processes.running import sigterm_came as sigterm_came
from storax.processes.running import sigterm_is_caught as sigterm_is_caught

__all__ = [
    "DEFAULT_GRACE",
    "DEFAULT_TIMEOUT",
    "Attendance",
    "Joined",
    "Judge",
    "Message",
    "Processes",
    "Service",
    "Solo",
    "check_same",
    "named",
    "present",
    "sigterm_came",
    "sigterm_is_caught",
    "wait_for_all",
]
