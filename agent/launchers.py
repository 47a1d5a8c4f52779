"""Commands that run other commands: what they would run, or that nobody can say. Pure.

Whatever is not known here word by word (an option, a builtin that evaluates text, a script that
comes by a pipe) is Unsure. That costs a question; a wrong guess would cost more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

UNKNOWN = "\0"
"""Stands in a word for what only the shell will know: an expansion, a glob, `{a,b}`, the input of
xargs. No word of a command can hold the character itself. It may stand for no word, and for many."""

Words = tuple[str, ...]


class Unsure(Exception):
    """What would run cannot be told with certainty."""


@dataclass(frozen=True)
class Script:
    """Text that a shell would run."""

    text: str


@dataclass(frozen=True, kw_only=True)
class _Options:
    """How a launcher's own words look, up to the program that it runs."""

    flags: frozenset[str] = frozenset()
    valued: frozenset[str] = frozenset()
    """Followed by a value, as the next word or attached."""
    pattern: re.Pattern[str] | None = None
    """Other options without a value."""
    positionals: int = 0
    assigns: bool = False
    """NAME=value may stand before the program."""


def names(text: str) -> frozenset[str]:
    """A set of words."""
    return frozenset(text.split())


def _options(
    flags: str = "",
    valued: str = "",
    pattern: str = "",
    positionals: int = 0,
    assigns: bool = False,
) -> _Options:
    return _Options(
        flags=names(flags),
        valued=names(valued),
        pattern=re.compile(pattern) if pattern else None,
        positionals=positionals,
        assigns=assigns,
    )


_XARGS = _options(
    "-0 -r -t -x --null --no-run-if-empty --verbose --exit",
    "-n -P -L -s -d -E -I -a --max-args --max-procs --max-lines --max-chars --delimiter --arg-file",
)
_LAUNCHERS = {
    "builtin": _options(),
    "busybox": _options(),
    "command": _options("-p"),
    "doas": _options("-n", "-u"),
    "env": _options("- -i --ignore-environment", "-u -C --unset --chdir", assigns=True),
    "exec": _options("-c -l", "-a"),
    "ionice": _options("-t", "-c -n"),
    "nice": _options("", "-n --adjustment", r"-\d+"),
    "nohup": _options(),
    "setsid": _options("-c -f -w"),
    "stdbuf": _options("", "-i -o -e --input --output --error"),
    "sudo": _options("-n -E -H -k -S", "-u -g --user --group", assigns=True),
    "time": _options("-p", assigns=True),
    "timeout": _options("-f -v --foreground --verbose", "-k -s --kill-after --signal", positionals=1),
    "toybox": _options(),
    "xargs": _XARGS,
}  # fmt: skip
_SHELLS = names("sh bash dash ash")
_SHELL_OPTION = re.compile(r"-[ceux]+|--norc|--noprofile")
_OPAQUE = names(
    # builtins that evaluate text, change what a name means, or take names with subscripts
    "eval . source trap alias unalias let declare typeset enable complete compgen compopt bind "
    "hash mapfile readarray getopts fc history shopt coproc export local readonly unset "
    # shells with another grammar
    "zsh ksh mksh rbash fish csh tcsh pwsh "
    # launchers whose words are not known here
    "aa-exec arch at batch bwrap caffeinate capsh cgexec choom chpst chroot chronic chrt coreutils "
    "cpulimit crontab daemonize dbus-launch dbus-run-session dumb-init eatmydata entr envdir envuidgid "
    "expect fakechroot faketime fakeroot firejail flock gdb gosu hyperfine i386 ifne lckdo ld.so linux32 "
    "linux64 logsave ltrace mispipe newgrp nsenter nsjail numactl parallel pee perf pkexec proot prlimit "
    "rlwrap rsh run-one run-parts runcon runuser sandbox-exec screen script sem setarch setlock setpriv "
    "setuidgid sg softlimit ssh ssh-agent start-stop-daemon strace su su-exec systemd-cat "
    "systemd-inhibit systemd-nspawn systemd-run taskset tini tmux torsocks tsocks uclampset uname26 "
    "unbuffer unshare valgrind watch x86_64 xvfb-run"
)
_LOADER = re.compile(r"ld(-[a-z0-9_-]+)?\.so(\.\d+)?")
"""The system's own launcher: `/lib64/ld-linux-x86-64.so.2 PROGRAM`."""
_RESERVED = names(
    "if then elif else fi for while until do done case esac select function { } ! [[ ]] (( ))"
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LOCAL = re.compile(r"[a-z_][a-z0-9_]*")
_LOCALE = re.compile(r"LANG|LC_(ALL|CTYPE)")
_UTF8 = re.compile(r"|C|POSIX|(C|[a-z]{2,3}_[A-Z]{2})\.(UTF-8|utf8)")
"""In other character sets a byte of a letter can be a backslash, and bash reads another line."""
_DECIDING = re.compile(
    # They decide which program runs, or run text by themselves.
    r"PATH|ENV|PS4|BASH.*|SHELLOPTS|EXECIGNORE|LD_.*|DYLD_.*|LOCPATH|"
    # Their values are evaluated as arithmetic, which may run a command.
    r"S?RANDOM|SECONDS|OPTIND|LINENO|HISTCMD|EPOCH.*|E?UID|PPID"
)
_EXEC = names("-exec -execdir -ok -okdir")


def launched(words: Words) -> Iterator[Words | Script]:
    """What the command `words` runs by itself. Raises Unsure."""
    program = words[0]
    if not program or UNKNOWN in program or program in _RESERVED:
        raise Unsure
    name = program.rpartition("/")[2].lower()
    if name in _OPAQUE or _LOADER.fullmatch(name):
        raise Unsure
    if name not in program and _is_known(name):  # BASH is bash on some disks
        raise Unsure
    if name in _SHELLS:
        yield from _shell(words)
    elif name == "find":
        yield from _find(words)
    elif name in _CHECKS:
        _CHECKS[name](words)
    elif name in _LAUNCHERS and not _only_asks(name, words):
        yield from _launcher(name, words)


def assignable(name: str, value: str = "") -> str:
    """The name of a variable that may be set without changing what runs. Raises Unsure."""
    if not _NAME.fullmatch(name) or _DECIDING.fullmatch(name):
        raise Unsure
    if _LOCALE.fullmatch(name) and not _UTF8.fullmatch(value):
        raise Unsure
    return name


def loop_variable(name: str) -> str:
    """The same where the value is not listed anywhere: names that no program looks at."""
    if not _LOCAL.fullmatch(name):
        raise Unsure
    return name


def _is_known(name: str) -> bool:
    return name in _SHELLS or name in _LAUNCHERS or name in _CHECKS or name == "find"


def _only_asks(name: str, words: Words) -> bool:
    return name == "command" and words[1:2] in (("-v",), ("-V",))


def _launcher(name: str, words: Words) -> Iterator[Words]:
    options = _LAUNCHERS[name]
    at = _past_options(words, options)
    if name == "builtin" and any(word.startswith("-") for word in words[1:2]):
        raise Unsure
    for _ in range(options.positionals):
        at += 1
    while options.assigns and at < len(words) and "=" in words[at]:
        variable, _, value = words[at].partition("=")
        assignable(variable, value)
        yield (words[at],)
        at += 1
    if any(UNKNOWN in word for word in words[1:at]):
        raise Unsure
    if at < len(words):
        yield _fed_by_input(words, at) if name == "xargs" else words[at:]


def _past_options(words: Words, options: _Options) -> int:
    """The place of the first word that is not the launcher's own."""
    at = 1
    while at < len(words):
        word = words[at]
        if word == "--":
            return at + 1
        if word in options.valued:
            at += 2
        elif _is_option(word, options):
            at += 1
        elif word.startswith("-") or UNKNOWN in word:
            raise Unsure
        else:
            return at
    return at


def _is_option(word: str, options: _Options) -> bool:
    if word in options.flags or (options.pattern and options.pattern.fullmatch(word)):
        return True
    if word.startswith("--"):
        return word.partition("=")[0] in options.valued and "=" in word
    if not word.startswith("-") or len(word) < 2:
        return False
    return word[:2] in options.valued or all(f"-{each}" in options.flags for each in word[1:])


def _fed_by_input(words: Words, at: int) -> Words:
    """The command of xargs with what its input adds."""
    hole = _hole(words[1:at])
    if not hole:
        return (*words[at:], UNKNOWN)
    return tuple(word.replace(hole, UNKNOWN) for word in words[at:])


def _hole(own: Sequence[str]) -> str:
    """What xargs replaces by its input; empty: it adds that at the end. Of `-I` and options about
    how much to add at once the later one counts, in most versions: nobody can say."""
    hole, counted = "", False
    left = iter(own)
    for word in left:
        value = next(left, "") if word in _XARGS.valued else word[2:]
        if word.startswith("-I"):
            if hole or not value:
                raise Unsure
            hole = value
        counted = counted or word.startswith(("-n", "-L", "--max"))
    if hole and counted:
        raise Unsure
    return hole


def _shell(words: Words) -> Iterator[Script]:
    """`bash -c TEXT` is opened; `bash FILE` is a program like any other; nothing else is known."""
    at = 1
    while at < len(words) and _SHELL_OPTION.fullmatch(words[at]):
        at += 1
    takes_text = any(re.fullmatch("-[eux]*c[ceux]*", word) for word in words[1:at])
    first = words[at] if at < len(words) else UNKNOWN
    if first.startswith(("-", "+", "/dev/", "/proc/")) or UNKNOWN in first:
        raise Unsure
    if takes_text:
        yield Script(first)


def _find(words: Words) -> Iterator[Words]:
    inside: list[str] | None = None
    for word in words[1:]:
        if inside is None:
            if UNKNOWN in word:  # it could be an -exec
                raise Unsure
            inside = [] if word in _EXEC else None
        elif word == ";" or (word == "+" and inside[-1:] == ["{}"]):
            if not inside:
                raise Unsure
            yield tuple(each.replace("{}", UNKNOWN) for each in inside)
            inside = None
        elif word in _EXEC:  # the first one was only the value of another test
            raise Unsure
        else:
            inside.append(word)
    if inside is not None:
        raise Unsure


# ── builtins that are harmless with some words only ──────────────────────────────────────────


def _check_test(words: Words) -> None:
    """`-v` and `-R` evaluate subscripts."""
    if any(UNKNOWN in word or word in ("-v", "-R") for word in words):
        raise Unsure


def _check_printf(words: Words) -> None:
    if any(word.startswith(("-v", UNKNOWN)) for word in words[1:2]):
        raise Unsure


def _check_plain(words: Words) -> None:
    """`wait -p` evaluates a subscript, `jobs -x` runs a command."""
    if any(word.startswith(("-", UNKNOWN)) for word in words[1:]):
        raise Unsure


def _check_set(words: Words) -> None:
    if not re.fullmatch(r"( -[eux]+| -[eux]*o (pipefail|errexit|nounset))+", _spaced(words[1:])):
        raise Unsure


def _check_read(words: Words) -> None:
    names = words[2:] if words[1:2] == ("-r",) else words[1:]
    for name in names:
        loop_variable(name)


def _spaced(words: Sequence[str]) -> str:
    return "".join(f" {word}" for word in words)


_CHECKS = {
    "[": _check_test,
    "test": _check_test,
    "printf": _check_printf,
    "wait": _check_plain,
    "jobs": _check_plain,
    "set": _check_set,
    "read": _check_read,
}
