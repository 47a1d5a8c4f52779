"""What a shell line would run: the list misses nothing that a real bash starts."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.command_line import segments
from agent.launchers import UNKNOWN, names

BASH = shutil.which("bash")
STUBS = ("ls", "rm", "wc", "cat", "sort", "git", "x")
REAL = ("env", "xargs", "nice", "nohup", "timeout", "find", "sh", "bash", "setsid", "stdbuf")
"""Launchers: what they start is looked up among the stubs."""

STUB = """#!{bash}
IFS=$'\\1'
set -- {name} "$@"
printf '%s\\0' "$*" >> {log}
"""

needs_bash = pytest.mark.skipif(BASH is None, reason="needs bash")


def test_it_lists_every_command_of_a_line():
    assert segments("cd src && make -j4 2>&1 | tee build.log; git add -A &") == (
        ("cd", "src"),
        ("make", "-j4"),
        ("tee", "build.log"),
        ("git", "add", "-A"),
    )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("'r'm \"-rf\" a\\ b", [("rm", "-rf", "a b")]),
        ("ls *.csv ~/x {a,b} $HOME", [("ls", "\0.csv", "\0/x", "\0", "\0")]),
        ("A=1 B=$x ls", [("A=1",), ("B=\0",), ("ls",)]),
        ("ls >out 2>>log </dev/null <in", [("ls",), (">", "out"), (">>", "log"), ("<", "in")]),
        ("echo $(rm a `wc`)", [("wc",), ("rm", "a", "\0"), ("echo", "\0")]),
        ('echo "a $(rm "$x")"', [("rm", "\0"), ("echo", "a \0")]),
        ("sort <(ls) >(wc)", [("ls",), ("wc",), ("sort", "\0", "\0")]),
        ("if ls; then rm; else wc; fi", [("ls",), ("rm",), ("wc",)]),
        ("for f in *; do rm $f; done", [("rm", "\0")]),
        ("while ! ls; do rm; done > x", [("ls",), ("rm",), (">", "x")]),
        ("case $x in a|b) ls;; *) rm & esac", [("ls",), ("rm",)]),
        ("f() { rm; }; f", [("rm",), ("f",)]),
        ("[ -f x ] && ls", [("ls",)]),
        ("cat <<'E' | wc\n$(rm)\nE\nls", [("cat",), ("wc",), ("ls",)]),
        ("find . -exec rm {} +", [("find", ".", "-exec", "rm", "{}", "+"), ("rm", "\0")]),
        ("ls | xargs -n1 rm -f", [("ls",), ("xargs", "-n1", "rm", "-f"), ("rm", "-f", "\0")]),
        ("xargs -I% cp % x", [("xargs", "-I%", "cp", "%", "x"), ("cp", "\0", "x")]),
        ("xargs -E -Iq -d , rm a", [("xargs", "-E", "-Iq", "-d", ",", "rm", "a"), ("rm", "a", "\0")]),
        ("xargs -P4 -I {} cp {} x", [("xargs", "-P4", "-I", "{}", "cp", "{}", "x"), ("cp", "\0", "x")]),
        ("LC_ALL=C.UTF-8 sort", [("LC_ALL=C.UTF-8",), ("sort",)]),
        ("sh -c 'rm; ls' x", [("sh", "-c", "rm; ls", "x"), ("rm",), ("ls",)]),
        ("env A=1 ls", [("env", "A=1", "ls"), ("A=1",), ("ls",)]),
        ("time -p nice -n 5 ls", [("time", "-p", "nice", "-n", "5", "ls"), ("nice", "-n", "5", "ls"), ("ls",)]),
        ("sudo -u bob timeout -k 1 5 rm", [("sudo", "-u", "bob", "timeout", "-k", "1", "5", "rm"), ("timeout", "-k", "1", "5", "rm"), ("rm",)]),
        ("echo 语言 #rm", [("echo", "语言")]),
        ("", []),
    ],
)  # fmt: skip
def test_words_are_what_the_program_would_get(line, expected):
    assert segments(line) == tuple(expected)


@pytest.mark.parametrize(
    "line",
    [
        # the program is not known
        "$x", "$(ls) a", "`ls` a", "r? a", "{rm,-rf,a}", "~/x", "$'rm' a", '$"rm" a', '"$@"', "''",
        # text that is evaluated
        "eval ls", ". x", "source x", "trap rm EXIT", "alias a=rm", "builtin eval rm",
        "command . x", "let x=1", "((x=1))", "echo $((x))", "echo $[x]", "echo ${x@P}", "echo ${!x}",
        "echo ${x:1}", "echo ${x[0]}", "x[1]=2", "x=(rm)", "declare -i x=1", "[[ $x -eq 1 ]]",
        "[ -v x ]", "test $x", "printf -v x a", "read 'x[0]'", "RANDOM=1", "unset 'x[0]'",
        "mapfile -C rm", "hash -p rm ls", "enable -f x ls", "exec 3<>/dev/tcp/1.1.1.1/80",
        "cat < /dev/tcp/1.1.1.1/80", "set -o posix", "shopt -s expand_aliases", "coproc ls",
        # what decides which program a name means
        "PATH=. ls", "LD_PRELOAD=x ls", "BASH_ENV=x bash -c ls", "PS4='$(rm)' bash -xc ls",
        "env PATH=. ls", "export PATH=.", "for PATH in .; do ls; done",
        "env 'BASH_FUNC_ls%%=() { rm; }' bash -c ls", "LC_ALL=zh_CN.gbk\necho a", "export LANG=ja_JP.SJIS",
        "env LC_CTYPE=$x ls", "LOCPATH=. ls", "/lib64/ld-linux-x86-64.so.2 /bin/rm x", "gosu bob rm x",
        "i386 rm x", "x86_64 rm x", "ssh-agent rm x", "dbus-launch rm x", "run-parts .", "systemd-cat rm x", "logsave l rm x",
        # input or data is the program
        "ls | bash", "bash < x", "bash -s", "bash /dev/stdin", "sh -c \"$x\"", "xargs sh -c",
        "xargs env", "xargs -I% -n2 rm a", "xargs -L1 -I% rm %", "xargs -I{} sh -c 'echo {}'", "find . -exec sh -c 'rm {}' ;", "find . $x",
        "find . -name -exec -o -exec rm {} ;", "env $x ls", "env -S 'rm x'", "timeout $x", "sudo -s", "ssh h rm", "parallel rm",
        # not a line, or one that is read differently
        "ls; done", "if ls", "ls |", "'", "time if ls; then rm; fi", "ls\r\nrm", "l\0s", "echo a\\\nb",
        "then rm", "cat <<E\n$(rm)\nE", "cat <<E\n`rm`\nE", "cat <<E\nx", "x" * 20_000,
        "(" * 200 + "ls" + ")" * 200, "\ud800",
    ],
)  # fmt: skip
def test_what_is_not_certain_is_not_guessed(line):
    assert segments(line) is None


# ── against a real bash ──────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    return _Shell(tmp_path_factory.mktemp("shell"))


class _Shell:
    """A bash that finds nothing but stubs, which write down how they were called, and launchers."""

    def __init__(self, folder: Path) -> None:
        self._bin, self._log, self._home = folder / "bin", folder / "log", folder / "home"
        self._bin.mkdir()
        self._home.mkdir()
        for name in STUBS:
            stub = self._bin / name
            stub.write_text(STUB.format(bash=BASH, name=name, log=self._log))
            stub.chmod(0o755)
        for name in REAL:
            if found := shutil.which(name):
                (self._bin / name).symlink_to(found)

    def started(self, line: str) -> list[str]:
        """The calls of stubs, words joined by \\1."""
        self._log.unlink(missing_ok=True)
        try:
            subprocess.run(
                [f"{BASH}", "--noprofile", "--norc", "-c", line],
                cwd=self._home,
                env={"PATH": str(self._bin), "HOME": "/h", "FUNCNEST": "5", "LC_ALL": "C.UTF-8"},
                input=b"fed a b\n",
                capture_output=True,
                timeout=5,
            )
        except subprocess.TimeoutExpired:
            pass  # what it started until then counts
        calls = self._log.read_bytes().decode("utf-8", "replace") if self._log.exists() else ""
        return calls.split("\0")[:-1]

    def missed(self, line: str) -> list[str]:
        """What bash ran and the list does not have."""
        listed = segments(line)
        if listed is None:
            return []
        patterns = [_pattern(words) for words in listed]
        return [
            call
            for call in self.started(line)
            if not any(pattern.fullmatch(call) for pattern in patterns)
        ]


def _pattern(words: Sequence[str]) -> re.Pattern[str]:
    own = ["(?:\1.*)?" if word == UNKNOWN else "\1" + _open(word) for word in words]
    return re.compile("".join(own).removeprefix("\1"), re.DOTALL)


def _open(word: str) -> str:
    return ".*".join(map(re.escape, word.split(UNKNOWN)))


HOSTILE = [
    "ls\nrm", "ls;rm", "ls&&rm||wc", "ls|rm", "ls|&rm", "ls&rm", "(ls;rm)", "{ ls; rm; }", "! rm",
    "echo $(rm)", "echo `rm`", 'echo "$(rm)" "`wc`"', "echo '$(rm)'", "x=$(rm)", "x=`rm` ls", ": ${x:=$(rm)}",
    "echo ${x:-$(rm)}", "echo ${x-`rm`}", "echo $((1+$(rm)))", "echo $[$(rm)]", "cat <(rm) >(wc)",
    "ls <<E\n$(rm)\nE", "ls <<'E'\n$(rm)\nE", "ls <<E | rm\na\nE", "ls <<E; rm\na\nE\nwc", "ls <<-E\n\ta\n\tE\nrm",
    "ls <<E\na\n E\nE\nrm", "ls <<E <<F\na\nE\nb\nF\nrm", "ls <<E 2>&1 | rm\na\nE", "ls <<\\E\n$(rm)\nE",
    "ls <<E\n\\$(rm) \\`wc\\`\nE", "ls <<< $(rm)", "r\\m", "r''m", "\"r\"m", "'rm'", "$'\\x72m'", "\\rm", "r\\\nm", "ls \\\nrm", "ls \\\\\nrm",
    "ls # ;rm\nwc", "ls #'\nrm #'", "echo a#b;rm", "echo '\n' ;rm", "echo \"a\\\"\";rm;\"", "echo \\';rm;'", "echo $'\\'';rm;'",
    "if rm; then ls; elif wc; then x; else sort; fi", "for i in 1 2; do rm $i; done", "for i in $(rm); do ls; done",
    "for ((i=0;i<1;i++)); do rm; done", "while rm; do break; done", "until rm; do ls; break; done", "select i in a; do rm; break; done",
    "case a in a) rm;; esac", "case a in (a) rm;; b) ls;; esac", "case $(rm) in *) ls;& b) wc; esac", "case a in $(rm)) ls;; esac",
    "case a in\na)\nrm\n;;\nesac", "case a in a)rm;;esac", "f(){ rm; };f", "f() ( rm ); f", "function f { rm; }; f", "ls(){ rm; };ls",
    "f() { $1; }; f rm", "f() { \"$@\"; }; f rm -x", "f(){ rm \"$@\"; }; f a b", "time rm", "time -p rm", "time ! rm", "time { rm; }", "time (rm)",
    "time if rm; then ls; fi", "coproc rm", "coproc { rm; }", "exec rm", "exec -a y rm", "command rm", "command -p rm", "builtin echo; rm",
    "builtin command rm", "jobs -x rm a", "jobs -lx rm", "command eval rm", "eval rm", "eval 'ls;rm'", "trap rm EXIT", "env rm", "env -i rm", "env -u A rm a", "env A=1 B=2 rm",
    "env -S 'rm a'", "env -S'rm a'", "env -- rm", "env -C . rm", "nice rm", "nice -5 rm", "nice -n 5 rm", "nice -n5 rm", "nohup rm", "timeout 5 rm",
    "timeout -s KILL 5 rm", "timeout --signal=KILL 5 rm", "timeout -k 1 5 rm", "timeout --kill-after 1 5 rm", "setsid -w rm", "stdbuf -oL rm",
    "xargs rm", "xargs -n1 rm", "xargs -n 1 rm", "xargs -I{} rm {}", "xargs -I {} rm -{}-", "xargs -Iq sh -c 'rm q'", "xargs -i rm {}", "xargs -d '\n' rm", "xargs",
    "xargs -I% -n2 rm a", "xargs -n2 -I% rm a", "xargs -I% -L1 rm a", "xargs -E -Iq rm a", "xargs -I% -d x rm a", "find . -name -exec -o -exec rm {} \\;",
    "xargs -I{} {} a", "xargs -a /dev/null rm", "find . -exec rm {} ;", "find . -exec rm {} \\;", "find . -exec rm a{}b \\; -exec wc {} +", "find . -execdir rm {} \\;",
    "find . -exec sh -c 'rm \"$1\"' _ {} \\;", "find . -exec env rm {} \\;", "sh -c rm", "sh -c 'ls|rm'", "bash -c 'ls\nrm'", "bash -ec rm", "bash -c -e rm",
    "sh -c '$0' rm", "sh -c '\"$@\"' _ rm", "sh -c 'sh -c \"sh -c rm\"'", "sh -ce rm", "bash -o errexit -c rm", "echo rm | sh", "sh <<< rm", "sh <<E\nrm\nE", "sh -s <<E\nrm\nE",
    "x=rm; $x", "x=rm; ${x}", "x='rm -a'; env $x", "x='-exec rm {} ;'; find . $x", "{rm,a}", "{ls,rm} a", "echo {a,$(rm)}", "ls;{ rm;}", "{ls;rm;}", "!rm", "! ! rm",
    "RANDOM='a[$(rm)]'", "OPTIND='a[$(rm)]'", "x='a[$(rm)]'; echo $((x))", "x='a[$(rm)]'; (( x ))", "x='a[$(rm)]'; [[ x -eq 1 ]]", "[ -v 'a[$(rm)]' ]", "test -v 'a[$(rm)]'",
    "[[ -v a[$(rm)] ]]", "[[ $(rm) ]]", "[[ -f $(rm) ]]", "[ \"$(rm)\" = a ]", "printf -v 'a[$(rm)]' x", "read 'a[$(rm)]'", "unset 'a[$(rm)]'", "declare -i a='a[$(rm)]'",
    "export 'a[$(rm)]=1'", "declare 'a[$(rm)]=1'", "a[$(rm)]=1", "a=([$(rm)]=1)", "local -i x", "let 'a[$(rm)]=1'", "x='a[$(rm)]'; echo ${a[x]}", "x='a[$(rm)]'; echo ${y:x}",
    "x='$(rm)'; echo ${x@P}", "PS4='$(rm)'; set -x; ls", "PS4='$(rm)' bash -xc ls", "for RANDOM in 'a[$(rm)]'; do ls; done", "for x in 'a[$(rm)]'; do echo $((x)); done",
    "for x in '-v a[$(rm)]'; do [ $x ]; done", "for x in -v; do [ \"$x\" 'a[$(rm)]' ]; done", "x=-v; printf \"$x\" 'a[$(rm)]' y", "wait -n -p 'a[$(rm)]'", "getopts a 'a[$(rm)]' -a",
    "mapfile -C rm -c 1 a", "alias ls=rm\nls", "shopt -s expand_aliases\nalias ls=rm\nls", "enable -n echo; echo a", "hash -p rm ls; ls", "compgen -C rm", "compgen -W '$(rm)'",
    "complete -C rm ls", "BASH_ENV=x bash -c ls", "env 'BASH_FUNC_ls%%=() { rm; }' bash -c ls", "exec {fd}>x; rm", "ls > x rm", "> x rm", ">x <y rm a", "2>x rm", "ls 2>&1 rm", "ls >&2 rm", "ls>a>b rm",
    "ls > $(rm)", "ls > >(rm)", "ls &> x; rm", "ls &>x rm", "ls >| x; rm", "ls <> x; rm", "ls 3>&1 4<&0 rm", "ls >&x; rm", "ls >&'$(rm)'", "ls 2>&1'$(rm)'", "ls <&'$(rm)'", "ls > '$(rm)'", "ls & & rm", "ls;;rm", "ls ; ; rm", "ls &\nrm", "ls ||\nrm", "ls |\n\nrm",
    "((ls)); rm", "( (ls); rm )", "$(rm)", "$(echo rm) a", "`echo rm` a", "\"$(echo rm)\"", "\"`echo rm`\"", "`echo \\`rm\\``", "echo `echo \"$(rm)\"`", "echo \"`echo \\\"$(rm)\\\"`\"",
    "echo \"$(echo \"$(rm)\")\"", "echo \"$( (rm) )\"", "echo $( (rm) )", "echo $((rm) )", "echo $((rm);(ls))", "echo $(ls # )\nrm)", "echo $(case a in a) rm;; esac)", "echo $(ls <<E\n)\nE\nrm)",
    "echo \"${x:-\"$(rm)\"}\"", "echo ${x:-'}'$(rm)}", "echo ${x/a/$(rm)}", "echo \"${x+'$(rm)'}\"", "echo ${x:-a;rm}", "echo ${#x};rm", "echo $#;rm", "echo $;rm", "echo $\"$(rm)\"", "echo \"$ $(rm)\"", "echo \"a$\"; rm",
    "ls\trm", "ls\vrm", "ls\frm", "ls\u00a0rm", "ls\u3000rm;wc", "rm\u200b", "\ufeffrm", "ls\r;rm", "ls ^ rm", "ls ^rm", "x=1rm", "x= rm", "x=a rm b=c", "x+=1 rm", "x=a\\ rm", "x='a' y=\"b\" rm", "A=1;rm", "export A=$(rm)",
    "export A=1 B; rm", "readonly A=1; rm", "local A=1; rm", "[ a = b ] || rm", "[ a ] ; rm", "[a] rm", "[[ a == b ]] || rm", "[[ a == b || $(rm) ]]", "[[ a =~ $(rm) ]]", "[[ (a) ]] && rm", "[ a -a $(rm) ]", "[ ! -f a ]&&rm",
    "test -f a || rm", "true && rm", "if :; then :; fi; rm", "while read l; do rm $l; done", "while read -r a b; do rm \"$a\"; done <<< 'p q'", "ls | while read -r l; do rm; done", "read -r x; rm $x", "cd . && rm", "(cd . && rm)",
    "set -e; rm", "set -- rm; \"$@\"", "set -- rm; $1", "set -x; rm", "exec > out; rm", "exec; rm", "ls {a,b}", "ls {1..3}", "ls *", "ls ~", "ls a=~", "ls 'a b' \"c d\"", "ls $HOME", "ls \"$HOME/x\"", "ls a$HOME'b'", "ls \"\" ''", "ls -- -a",
    "x() { ls; }; rm", "x () { ls; }\nx", "function x() { rm; }\nx", "if() { rm; }; if", "in() { rm; }; in", "f() { f2() { rm; }; f2; }; f", "echo do; rm", "echo done; rm", "for x in do; do rm; done", "for do in a; do rm; done", "for x do rm; done", "for x; do rm; done",
    "for x in a\ndo\nrm\ndone", "{\nrm\n}", "(\nrm\n)", "if\nls\nthen\nrm\nfi", "ls && { rm; } || wc", "ls && (rm)", "ls | { rm; wc; }", "! { rm; }", "{ rm; } > x", "(rm) > x", "if ls; then rm; fi > x 2>&1", "for i in a; do rm; done | wc", "f() { rm; } > x; f",
    "echo 'a'\"$(rm)\"b", "echo a\\$(ls)", "echo \\`rm\\`", "echo \"\\$(rm)\"", "echo \"\\`rm\\`\"", "echo \"\\\\$(rm)\"", "echo \"\\\\`rm`\"", "ls \\; rm", "ls \\& rm", "ls \\\trm", "ls '\\' rm", "ls \"\\\\\" ; rm",
    "git -c x=y log", "git log --format='%h'", "sort -k1,2 -t, x", "wc -l < x", "cat a - b", "cat - <<E\na\nE", "ls -", "ls - ; rm", "ls -; rm", "ls - | rm", "cat -- - && rm", "wc -\nrm", "cat - > y", "ls a=b c+=d", "ls %1 @a +b ,c :d", "ls a,b a:b a@b a%b",
]  # fmt: skip


@needs_bash
def test_nothing_that_a_hostile_line_runs_is_missed(shell):
    missed = {line: found for line in HOSTILE if (found := shell.missed(line))}
    assert missed == {}


@needs_bash
def test_the_comparison_can_fail(shell):
    assert shell.started("ls a; rm 'b c' &") != []
    assert {*shell.started("ls a; env rm 'b c'")} == {"ls\1a", "rm\1b c"}


TOKENS = names(
    "ls rm wc cat x git sort env xargs time nice command exec bash -c sh find -exec + {} if then elif else "
    "fi for in do done case esac f() function { } ( ) [ ] [[ ]] ! ; ;; & && | || |& < > >> <<< <<E E <<-E "
    "$( ` ' \" \\ $ $x ${x} ${x:- $(( )) $[ ] <( >( # = x= A=1 * ~ ? - -- -n 5 a b {a,b} 2>&1 2> &> $' $\" eval "
    "echo break : true @ % ^ , ."
)
line_pieces = st.lists(
    st.one_of(
        st.sampled_from(sorted(TOKENS)),
        st.sampled_from([" ", " ", " ", "\n", "; ", "\t", "\\\n", " | ", " && ", "$(rm)", "`rm`"]),
        st.sampled_from(["'a b'", '"a b"', '"$x"', "'$(rm)'", "ls", "rm a", "cat <<E\na\nE\n"]),
    ),
    min_size=1,
    max_size=14,
)
spaced = st.lists(st.sampled_from([*sorted(TOKENS), "\n", ";"]), min_size=1, max_size=12).map(
    " ".join
)
lines = st.one_of(line_pieces.map("".join), spaced)


def random_lines(examples: int) -> settings:
    return settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


@needs_bash
@random_lines(300)
@given(line=lines)
def test_nothing_that_a_random_line_runs_is_missed(shell, line):
    assert shell.missed(line) == []


@needs_bash
@pytest.mark.long
@random_lines(30_000)
@pytest.mark.timeout(1800)
@given(line=lines)
def test_nothing_that_many_random_lines_run_is_missed(shell, line):
    assert shell.missed(line) == []
