"""A shell line as the commands that it would run. Pure: nothing is run, nothing is looked up.

tree-sitter says how the line is built. It also reads what bash would read differently, so it is
believed only where this module has checked it: every word is scanned again, the space between two
tokens has to be space, and a construct that is not named here makes the whole line uncertain.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import pairwise

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from agent.launchers import (
    UNKNOWN,
    Script,
    Unsure,
    Words,
    assignable,
    launched,
    loop_variable,
    names,
)
from agent.shell_words import is_plain_pattern, is_plain_test, runs_nothing, scan

MAX_BYTES = 16 * 1024
MAX_DEPTH = 64
MAX_SEGMENTS = 500


def segments(command: str) -> tuple[Words, ...] | None:
    """Every simple command that `bash -c command` would run, as words, in the order of the text;
    None when that is not certain, which means that a person has to be asked.

    What a launcher runs (`env`, `xargs`, `sh -c`, `find -exec` …) is listed after the launcher. An
    assignment is a segment of its own, `("NAME=value",)`, and so is a redirection that opens a file,
    `(">", "path")`, `(">>", "path")` or `("<", "path")`. UNKNOWN stands in a word for what only the
    shell will know. Tests in brackets run nothing and are not listed.
    """
    try:
        return tuple(_Line(command, depth=0).segments())
    except (Unsure, UnicodeEncodeError, UnicodeDecodeError):
        return None


_ODD = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_BLANK = re.compile(r"(?:[ \t]+(?:\\\n[ \t]*)*)?")
_SPACE = re.compile(r"(?:[ \t\n]+(?:\\\n[ \t\n]*)*)?")
_DELIMITER = " \t\n;&|()<>"
_BACKTICKS = re.compile(r"`([^`\\\"']*)`")
_WORDS = names(
    "word number string raw_string concatenation simple_expansion expansion command_substitution "
    "process_substitution arithmetic_expansion"
)
_BLOCKS = names(
    "program list pipeline subshell compound_statement if_statement elif_clause else_clause "
    "while_statement do_group negated_command redirected_statement command_substitution "
    "process_substitution"
)
_ONE_LINE = names(
    "command redirected_statement file_redirect herestring_redirect declaration_command "
    "unset_command variable_assignments negated_command"
)
_TOKENS = names("; & && || | |& ! { } ( ) if then elif else fi while until do done $( <( >(") | {
    "\n"
}
_REDIRECTS = {">": ">", ">|": ">", "&>": ">", ">>": ">>", "&>>": ">>", "<": "<"}
_OPEN_FOR_ALL = frozenset({"/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr"})


@cache
def _language() -> Language:
    return Language(tree_sitter_bash.language())


class _Line:
    """One text for a shell. Works on its UTF-8 bytes, each as one character: the parser's offsets
    count bytes."""

    def __init__(self, text: str, depth: int) -> None:
        self._source = text.encode().decode("latin-1")
        if len(self._source) > MAX_BYTES or _ODD.search(self._source):
            raise Unsure
        self._depth = depth
        self._found: list[Words] = []
        self._heredoc_ends = -1
        self._visitors: dict[str, Callable[[Node, int], None]] = {
            **dict.fromkeys(_BLOCKS, self._block),
            "command": self._command,
            "variable_assignment": self._assignment,
            "variable_assignments": self._declaration,
            "declaration_command": self._declaration,
            "unset_command": self._declaration,
            "file_redirect": self._redirect,
            "herestring_redirect": self._redirect,
            "heredoc_redirect": self._heredoc,
            "for_statement": self._for,
            "case_statement": self._case,
            "function_definition": self._function,
            "test_command": self._test,
            "comment": self._comment,
        }
        """Nodes that are not words; what is not here is uncertain."""

    def segments(self) -> list[Words]:
        root = Parser(_language()).parse(self._source.encode("latin-1")).root_node
        if root.has_error or root.type != "program":
            raise Unsure
        edges = (self._source[: root.start_byte], self._source[root.end_byte :])
        if not all(map(_SPACE.fullmatch, edges)):
            raise Unsure
        if root.children:
            self._visit(root, self._depth)
        return self._found

    # ── structure ────────────────────────────────────────────────────────────────────────────

    def _visit(self, node: Node, depth: int) -> None:
        """List what runs in a node that is not a word."""
        if depth > MAX_DEPTH or len(self._found) > MAX_SEGMENTS:
            raise Unsure
        is_arithmetic = node.type == "compound_statement" and self._text(node).startswith("((")
        visit = self._visitors.get(node.type)
        if visit is None or is_arithmetic:
            raise Unsure
        visit(node, depth)

    def _block(self, node: Node, depth: int) -> None:
        for child in self._children(node):
            if child.is_named:
                self._visit(child, depth + 1)
            elif child.type not in _TOKENS:
                raise Unsure

    def _command(self, node: Node, depth: int) -> None:
        words: list[str] = []
        later: list[Node] = []
        for child in self._children(node):
            if child.type == "command_name":
                (name,) = child.children
                words.append(self._word(name, depth))
            elif child.type in ("file_redirect", "herestring_redirect"):
                later.append(child)
            elif child.type == "variable_assignment" and not words:
                self._assignment(child, depth)
            elif words:
                words.append(self._word(child, depth))
            else:
                raise Unsure
        if not words:
            raise Unsure
        self._run(tuple(words), depth)
        for redirect in later:
            self._visit(redirect, depth + 1)

    def _run(self, words: Words, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise Unsure
        self._found.append(words)
        for inner in launched(words):
            if isinstance(inner, Script):
                self._script(inner.text, depth)
            elif "=" in inner[0] and len(inner) == 1:
                self._found.append(inner)
            else:
                self._run(inner, depth + 1)

    def _assignment(self, node: Node, depth: int) -> None:
        name, *rest = self._children(node)
        if name.type != "variable_name" or not rest or rest[0].type not in ("=", "+="):
            raise Unsure
        if self._source[rest[0].end_byte : node.end_byte].startswith(tuple(" \t\n")):
            raise Unsure
        value = self._word(rest[1], depth, assigned=True) if len(rest) == 2 else ""
        if len(rest) > 2:
            raise Unsure
        variable = assignable(self._text(name), value)
        self._found.append((f"{variable}{rest[0].type}{value}",))

    def _declaration(self, node: Node, depth: int) -> None:
        """Plain names only: options and subscripts make values be evaluated."""
        children = self._children(node)
        if node.type != "variable_assignments":
            if children[0].type not in ("export", "local", "readonly", "unset"):
                raise Unsure
            names = [self._text(each) for each in children[1:] if each.type == "variable_name"]
            self._found.append((children.pop(0).type, *map(assignable, names)))
        for child in children:
            if child.type == "variable_assignment":
                self._assignment(child, depth)
            elif child.type != "variable_name":
                raise Unsure

    def _for(self, node: Node, depth: int) -> None:
        keyword, name, *rest = self._children(node)
        if keyword.type not in ("for", "select"):
            raise Unsure
        loop_variable(self._text(name))
        for child in rest:
            if child.type in _WORDS:
                self._word(child, depth)
            elif child.is_named:
                self._visit(child, depth + 1)
            elif child.type not in ("in", ";", "\n"):
                raise Unsure

    def _case(self, node: Node, depth: int) -> None:
        _, value, *rest = self._children(node)
        self._word(value, depth)
        for child in rest:
            if child.type == "case_item":
                self._case_item(child, depth)
            elif child.is_named or child.type not in ("in", "esac", "\n", ";"):
                raise Unsure

    def _case_item(self, node: Node, depth: int) -> None:
        opened = False
        for child in self._children(node):
            if opened and child.is_named:
                self._visit(child, depth + 1)
            elif child.type == ")":
                opened = True
            elif child.is_named:
                if not is_plain_pattern(self._text(child)):
                    raise Unsure
            elif child.type not in ("(", "|", ";", ";;", ";&", ";;&", "&", "\n"):
                raise Unsure

    def _function(self, node: Node, depth: int) -> None:
        for child in self._children(node):
            if child.type == "word":
                if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", self._text(child)):
                    raise Unsure
            elif child.is_named:
                self._visit(child, depth + 1)
            elif child.type not in ("function", "(", ")"):
                raise Unsure

    def _test(self, node: Node, depth: int) -> None:
        """Known forms only: others evaluate subscripts, or words that come of an expansion."""
        self._delimited(node)
        if not is_plain_test(self._text(node)):
            raise Unsure

    def _comment(self, node: Node, depth: int) -> None:
        before, after = self._around(node)
        if before not in _DELIMITER or after not in "\n" or "\n" in self._text(node):
            raise Unsure

    # ── redirections ─────────────────────────────────────────────────────────────────────────

    def _redirect(self, node: Node, depth: int) -> None:
        children = self._children(node)
        if children[0].type == "file_descriptor":
            number = children.pop(0)
            if not self._text(number).isdigit() or number.end_byte != children[0].start_byte:
                raise Unsure
        operator, *target = children
        if operator.type in ("<&-", ">&-") and not target:
            return
        if len(target) != 1:
            raise Unsure
        word = self._word(target[0], depth)
        if operator.type == "<<<":
            return
        if operator.type in (">&", "<&"):
            if not re.fullmatch("[0-9]+", word):  # bash expands a name there twice
                raise Unsure
            return
        self._opened(operator.type, word, is_pipe=target[0].type == "process_substitution")

    def _opened(self, operator: str, path: str, *, is_pipe: bool) -> None:
        """A file, never one of the paths by which bash reaches the network."""
        if operator not in _REDIRECTS:
            raise Unsure
        if is_pipe or path in _OPEN_FOR_ALL:
            return
        if path.startswith((UNKNOWN, "/dev/")) or (UNKNOWN in path and path.startswith("/")):
            raise Unsure
        self._found.append((_REDIRECTS[operator], path))

    def _heredoc(self, node: Node, depth: int) -> None:
        if node.start_byte < self._heredoc_ends:
            raise Unsure
        self._heredoc_ends = node.end_byte
        operator, start, *line, body, end = node.children
        types = [operator.type, start.type, body.type, end.type]
        if types not in (
            [each, "heredoc_start", "heredoc_body", "heredoc_end"] for each in ("<<", "<<-")
        ):
            raise Unsure
        self._check_heredoc(operator, start, body, end)
        self._check_gaps([operator, start, *line], _BLANK)
        rest = self._source[(line or [start])[-1].end_byte :].partition("\n")
        if rest[0].strip(" \t") or self._source.find("\n", start.end_byte) >= body.start_byte:
            raise Unsure
        for child in line:
            if child.is_named:
                self._visit(child, depth + 1)
            elif child.type not in _TOKENS:
                raise Unsure

    def _check_heredoc(self, operator: Node, start: Node, body: Node, end: Node) -> None:
        """The body goes exactly to the first line that is the delimiter, and expands nothing that
        could run."""
        delimiter = re.fullmatch(r"(['\"]?)(\w+)\1", self._text(start), re.ASCII)
        if delimiter is None:
            raise Unsure
        first = self._source.find("\n", start.end_byte) + 1
        lines = self._source[first : end.end_byte].split("\n")
        if operator.type == "<<-":
            lines = [line.lstrip("\t") for line in lines]
        if delimiter[2] not in lines or lines.index(delimiter[2]) != len(lines) - 1:
            raise Unsure
        if self._around(end)[1] not in "\n":
            raise Unsure
        if not delimiter[1] and not runs_nothing("\n".join(lines)):
            raise Unsure

    # ── words ────────────────────────────────────────────────────────────────────────────────

    def _word(self, node: Node, depth: int, *, assigned: bool = False) -> str:
        """What a word will be after quotes are taken off; lists what its substitutions run."""
        if node.type not in _WORDS:
            raise Unsure
        self._delimited(node, assigned=assigned)
        substitutions = {each.children[0].end_byte - 2: each for each in _substitutions(node)}

        def nested(at: int) -> int:
            if self._source[at] == "`":
                return self._backticks(at, node.end_byte, depth)
            if at not in substitutions:
                raise Unsure
            self._block(substitutions[at], depth + 1)
            return substitutions[at].end_byte

        word = scan(self._source, node.start_byte, node.end_byte, nested)
        return word.encode("latin-1").decode()

    def _backticks(self, at: int, end: int, depth: int) -> int:
        """A text of its own, where no character means another one outside."""
        found = _BACKTICKS.match(self._source, at, end)
        if found is None:
            raise Unsure
        self._script(found[1].encode("latin-1").decode(), depth)
        return found.end()

    def _script(self, text: str, depth: int) -> None:
        self._found += _Line(text, depth + 8).segments()

    # ── what the parser said, checked ────────────────────────────────────────────────────────

    def _text(self, node: Node) -> str:
        return self._source[node.start_byte : node.end_byte]

    def _around(self, node: Node) -> tuple[str, str]:
        """The characters before and after; "" at the ends."""
        before = self._source[max(0, node.start_byte - 1) : node.start_byte]
        return before, self._source[node.end_byte : node.end_byte + 1]

    def _delimited(self, node: Node, *, assigned: bool = False) -> None:
        """For bash, too, the word begins and ends here."""
        before, after = self._around(node)
        if (before not in _DELIMITER and not assigned) or after not in _DELIMITER:
            raise Unsure

    def _children(self, node: Node) -> list[Node]:
        """The children, between which there is nothing but space."""
        children = node.children
        if not children:
            raise Unsure
        allowed = _BLANK if node.type in _ONE_LINE else _SPACE
        self._check_gaps(children, allowed)
        before = self._source[node.start_byte : children[0].start_byte]
        after = self._source[children[-1].end_byte : node.end_byte]
        if not allowed.fullmatch(before) or not allowed.fullmatch(after):
            raise Unsure
        return children

    def _check_gaps(self, children: Sequence[Node], allowed: re.Pattern[str]) -> None:
        for one, other in pairwise(children):
            if not allowed.fullmatch(self._source[one.end_byte : other.start_byte]):
                raise Unsure


def _substitutions(node: Node) -> Iterator[Node]:
    """The outermost ones inside a word."""
    if node.type in ("command_substitution", "process_substitution"):
        yield node
        return
    for child in node.children:
        yield from _substitutions(child)
