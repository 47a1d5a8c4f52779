"""What a program that is run for a task may use, with everything that it starts.

The kernel holds what it can hold for each process (`ulimit`). What all of them use together is
looked at now and then, where there is a /proc.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.processes import use_of

MAX_PROCESSES = 256
MAX_FILE_BYTES = 2 * 1024 * 1024 * 1024
"""Of one file that it writes."""
MEMORY = 2048 * 1024 * 1024
_SET = 'for limit in {limits}; do ulimit -"${{limit%=*}}" "${{limit#*=}}" 2>/dev/null; done\n'


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Of one program."""

    memory: int = MEMORY
    """Bytes: what all processes have in memory, and what one of them may ask for."""
    seconds: float | None = None
    """Processor time of one process."""

    def script(self, *, boxed: bool) -> str:
        """The beginning of a bash script that sets what the kernel holds, for all that follows."""
        limits = {"c": 0, "d": self.memory // 1024, "f": MAX_FILE_BYTES // 1024}
        if self.seconds is not None:
            limits["t"] = int(self.seconds) + 1
        if boxed:
            limits["u"] = MAX_PROCESSES  # outside it would count whatever else the user runs
        return _SET.format(limits=" ".join(f"{name}={value}" for name, value in limits.items()))

    def broken_by(self, pid: int) -> str:
        """What a process and everything below it use too much of, as half a sentence; or nothing.
        Reads all of /proc: for a thread."""
        use = use_of(pid)
        if use.processes > MAX_PROCESSES:
            return f"it had more than {MAX_PROCESSES} processes"
        if use.memory > self.memory:
            return f"it used more than {self.memory // 1024**2:,} MB of memory"
        return ""
