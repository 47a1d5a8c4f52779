"""run_command: a shell line in the workspace, in a sandbox, with a report of what it changed.

1. A person has seen the line, where it runs and in which sandbox. With another sandbox than the one
   that was shown it does not run.
2. Time, memory, processes and output are bounded. What goes over a bound is stopped, with
   everything that it started.
3. One command at a time in a workspace, so that the report is about this one.
"""

from __future__ import annotations

import asyncio
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from agent.bounds import MAX_PROCESSES, MEMORY, Bounds
from agent.children import Child, Wrapped, environment, running, tied
from agent.command_line import segments
from agent.errors import TargetChanged, ToolFailed
from agent.launchers import UNKNOWN
from agent.sandbox import INSIDE, READ_ONLY, Sandbox, bubblewrap
from agent.text import cut
from agent.toolbox import NOT_A_DIFF, Preview, Reach, Tool, ToolContext, ToolResult
from agent.tools.output import Output
from agent.tools.watched import WAIT_SECONDS, watched
from agent.workspace import Workspace

LOOK_SECONDS = 0.2
PROGRESS_SECONDS = 0.1
SPARE_SECONDS = WAIT_SECONDS + 60
"""Beside the command's own time."""

_RUN = 'exec "$BASH" --noprofile --norc -c "$1"'


@dataclass(frozen=True, kw_only=True)
class Shell:
    """How commands are run here."""

    seconds: float = 60
    memory: int = MEMORY
    unsandboxed: bool = False
    """Where there is no sandbox, run without."""
    hidden: Sequence[Path] = ()
    """Directories of the server."""
    sandbox: Callable[[], str | None] = field(default=bubblewrap, repr=False)
    """The program that makes the sandbox, None without one."""

    def tool(self) -> Tool:
        return Tool(
            name="run_command",
            description=_DESCRIPTION.format(seconds=self.seconds),
            parameters=_PARAMETERS,
            capability="shell:execute",
            risk="high",
            run=partial(_run, self),
            preview=partial(_preview, self),
            reach=_reach,
            timeout=self.seconds + SPARE_SECONDS,
        )

    @property
    def bounds(self) -> Bounds:
        return Bounds(memory=self.memory, seconds=self.seconds)

    def program(self) -> str | None:
        """The sandbox's program; None to run without. Raises ToolFailed."""
        program = self.sandbox()
        if program is None and not self.unsandboxed:
            raise ToolFailed(
                "Commands cannot be run: there is no working sandbox (bubblewrap) on this server, "
                "and running without one is not allowed by its settings. Tell the person; do not "
                "try another way."
            )
        return program


@dataclass(frozen=True, kw_only=True)
class _Outcome:
    status: int | None
    """None: it was stopped by us."""
    stopped: str = ""
    """Why."""


def _reach(arguments: dict[str, Any], workspace: Workspace) -> Reach:
    return Reach(commands=segments(arguments["command"]))


def _preview(shell: Shell, arguments: dict[str, Any], context: ToolContext) -> Preview:
    command = arguments["command"]
    program = shell.program()
    _bash()
    said = [
        f"{NOT_A_DIFF} command",
        _fenced(command),
        "",
        f"{NOT_A_DIFF} where",
        "folder: the top of the workspace",
        *(_SANDBOXED if program else _UNSANDBOXED),
        f"limits: {shell.seconds:g} seconds, {shell.memory // 1024**2:,} MB, "
        f"{MAX_PROCESSES} processes",
        "",
        f"{NOT_A_DIFF} what the line runs",
        *_parts(command),
    ]
    return Preview(
        diff="\n".join(said) + "\n",
        target_digest=_digest(program),
        summary=f"Run {cut(command, 200)}",
    )


def _parts(command: str) -> Iterator[str]:
    found = segments(command)
    if found is None:
        yield "This cannot be told with certainty. Read the line itself."
        return
    for words in found:
        yield _fenced(" ".join(map(_shown, words)))


def _fenced(text: str) -> str:
    """Lines of the model's own get a bar: none of them can pass for one of ours."""
    return "│ " + text.replace("\n", "\n│ ") if "\n" in text else text


def _shown(word: str) -> str:
    """Quoted as a shell needs it, so that one word looks like one."""
    if word in (UNKNOWN, ">", ">>", "<"):
        return word.replace(UNKNOWN, "…")
    return shlex.quote(word).replace(UNKNOWN, "…")


def _digest(program: str | None) -> str:
    """What the person was told about where it runs."""
    return "sandbox:bubblewrap" if program else "sandbox:none"


async def _run(shell: Shell, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
    program = await asyncio.to_thread(shell.program)
    if context.expected_target not in (None, _digest(program)):
        raise TargetChanged("The sandbox is not the one that was approved.")
    output = Output()
    outcome, report = await watched(
        context, lambda: _execute(shell, program, arguments["command"], context, output)
    )
    text = output.text().replace(str(context.workspace.root), "(workspace)")
    return ToolResult(
        ok=outcome.status == 0,
        content="\n".join([_ended(outcome), text or "(no output)", *report.lines()]),
        details={
            "exit_status": outcome.status,
            "stopped": outcome.stopped,
            "output_bytes": output.total,
            "sandbox": "bubblewrap" if program else "none",
            **report.details(),
        },
    )


def _ended(outcome: _Outcome) -> str:
    if outcome.status is None:
        return f"[Stopped with everything that it started: {outcome.stopped}.]"
    if outcome.status < 0:
        return f"[Ended by signal {-outcome.status}.]"
    return f"[Exit status {outcome.status}.]"


async def _execute(
    shell: Shell, program: str | None, command: str, context: ToolContext, output: Output
) -> _Outcome:
    root = context.workspace.root
    with _wrapped(shell, program, command, root) as wrapped:
        try:
            async with (
                asyncio.timeout(shell.seconds),
                running(
                    wrapped.arguments,
                    cwd=root,
                    env=_environment(program, root),
                    output=_watched(output, context),
                    pass_fds=wrapped.pass_fds,
                ) as child,
            ):
                return await _within_bounds(child, shell)
        except TimeoutError:
            return _Outcome(status=None, stopped=f"it took longer than {shell.seconds:g} seconds")


async def _within_bounds(child: Child, shell: Shell) -> _Outcome:
    waiting = asyncio.create_task(child.wait())
    try:
        while True:
            done, _ = await asyncio.wait({waiting}, timeout=LOOK_SECONDS)
            if done:
                return _Outcome(status=waiting.result())
            broken = await asyncio.to_thread(shell.bounds.broken_by, child.pid)
            if broken:
                return _Outcome(status=None, stopped=broken)
    finally:
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


def _watched(output: Output, context: ToolContext) -> Callable[[bytes], None]:
    """Keeps what comes and shows its last line, not more often than eyes can follow."""
    loop = asyncio.get_running_loop()
    shown_at = float("-inf")

    def keep(data: bytes) -> None:
        nonlocal shown_at
        output.add(data)
        if loop.time() - shown_at >= PROGRESS_SECONDS:
            shown_at = loop.time()
            context.progress(output.last_line(), None, None)

    return keep


@contextmanager
def _wrapped(shell: Shell, program: str | None, command: str, root: Path) -> Iterator[Wrapped]:
    script = shell.bounds.script(boxed=program is not None) + _RUN
    bash = ["bash" if program else _bash(), "--noprofile", "--norc", "-c"]
    around: AbstractContextManager[Wrapped]
    if program:
        box = Sandbox(program=program, root=root, hidden=shell.hidden)
        around = box.command([*bash, script, "bash", command], _inside())
    else:
        around = tied(bash, script, command)
    with around as wrapped:
        yield wrapped


def _environment(program: str | None, root: Path) -> dict[str, str]:
    if program:
        return environment()
    # In the server's own character set a byte of a letter could be a backslash, and bash would read
    # another line than the one that was judged.
    utf8 = "C.UTF-8"
    return environment(HOME=str(root), TERM="dumb", LANG=utf8, LC_ALL=utf8, LC_CTYPE=utf8)


def _inside() -> dict[str, str]:
    path = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
    return {"HOME": "/tmp", "LANG": "C.UTF-8", "PATH": path, "TERM": "dumb"}  # noqa: S108


def _bash() -> str:
    found = shutil.which("bash")
    if found is None:
        raise ToolFailed("Commands cannot be run: there is no bash on this server.")
    return found


_SANDBOXED = (
    "sandbox: bubblewrap",
    "  no network, no Unix sockets, no other processes, none of the server's files and keys",
    "  the system can only be read; what is written to /tmp is lost",
    f"  the workspace ({INSIDE}) can be changed, except {' and '.join(f'{d}/' for d in READ_ONLY)}",
)
_UNSANDBOXED = (
    "sandbox: NONE",
    "  the command can read, change and send whatever the server's own user can",
)
_DESCRIPTION = (
    "Run a bash command line in the workspace (its top is the current directory) and get exit "
    "status, output (stdout and stderr together) and the files it changed. There is no input, no "
    "network and at most {seconds:g} seconds; background processes end with the line. A person "
    "reads the exact line first: keep it short and plain. Use the file tools where they do."
)
_PARAMETERS = {
    "type": "object",
    "properties": {
        "command": {
            "type": "string",
            "minLength": 1,
            "maxLength": 8000,
            # A person has to see what they approve: no control and no direction characters.
            "pattern": (
                "^[^\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4"
                "\\u17b5\\u180b-\\u180e\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u3164\\ufeff\\uffa0"
                "\\ufff9-\\ufffb\\ud800-\\udfff]*$"
            ),
            "description": "One line or a short script, e.g. `wc -l *.csv | sort -n`.",
        }
    },
    "required": ["command"],
    "additionalProperties": False,
}
