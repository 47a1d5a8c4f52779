"""Tool calls put together from fragments, however a provider labels them. Pure.

Providers disagree on which of index, id and name a fragment carries, so a fragment is placed by all
of them: an id that we know, else its index, else the call that is open. What then still decides
whether a named fragment goes on or starts anew is whether the arguments so far are already a
complete object: a complete JSON object cannot be continued.

Only `arguments` is incremental. A repeated id, name or type is the same value again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from agent.errors import ProviderRefused
from agent.events import MAX_RAW_ARGUMENTS, ToolCallDelta
from agent.messages import ToolCall
from agent.providers.chunks import Call, Function
from agent.scrub import Scrubber
from agent.text import clean_json, cut

MAX_CALLS = 128
CUT_OFF = (
    "Your output was cut off at its length limit before this call was complete. It was not "
    "executed. Send it again, shorter or in several smaller calls."
)
FILTERED = (
    "The provider's content filter cut your output off before this call was complete. It was not "
    "executed. Say it differently, or explain what you cannot do."
)
_NO_NAME = frozenset({"null", "None", "undefined"})
"""What some servers write where there is no name."""
_MARKS = re.compile(r"^(?:functions|tools|default_api)[.:]|(?::\d+|<\|.*)$", re.DOTALL)
"""Of models' own notations, which some servers leave around a tool's name: `functions.read_file:0`,
`read_file<|channel|>commentary`."""


class OpenCall:
    """A call that is still being written."""

    def __init__(self, block_id: str, position: int, index: int | None) -> None:
        self.block_id = block_id
        self.position = position
        self.index = index
        """The provider's own number."""
        self.id = ""
        self.name = ""
        self.extra: Any = None
        self.pieces: list[str] = []
        """Raw argument text as it arrived; the assembler cleans and emits it."""
        self.blank = True

    def text(self) -> str:
        return "".join(self.pieces)

    def head(self, entry: Call, name: str) -> None:
        """Learn what `entry` says beside the arguments."""
        self.id = self.id or entry.id or ""
        self.name = _name(self.name, name)
        if entry.extra_content is not None:
            self.extra = entry.extra_content

    def append(self, text: str) -> None:
        if text:
            self.pieces.append(text)
            self.blank = self.blank and not text.strip()


class CallTable:
    """Every call of one reply, in the order in which they were opened."""

    def __init__(
        self, new_block_id: Callable[[], str], tools: frozenset[str] = frozenset()
    ) -> None:
        self._new_block_id = new_block_id
        self._tools = tools
        """The names that the model was told."""
        self.calls: list[OpenCall] = []
        self._by_index: dict[int, OpenCall] = {}
        self._scans = 512
        """Looks at whole argument texts are few: a hostile stream must not buy quadratic work."""

    def add(self, entry: Call) -> tuple[OpenCall, str] | None:
        """Put `entry` where it belongs: (its call, the argument text that is new)."""
        function = entry.function or Function()
        name, new = function.name or "", function.arguments or ""
        name = "" if name in _NO_NAME else name
        if not (entry.id or name or new):
            return None
        call = self._candidate(entry, name)
        if call is None or self._starts_anew(call, entry, name, new):
            call = self._open(entry.index)
        elif self._repeats(call, new):
            new = ""
        if entry.index is not None:
            self._by_index[entry.index] = call
        call.head(entry, name)
        call.append(new)
        return call, new

    def name_of(self, call: OpenCall) -> str:
        """What it is called; marks around the name of a tool that there is are taken off."""
        name = call.name.strip()
        bare = name if name in self._tools else _MARKS.sub("", name)
        return bare if bare in self._tools else name

    def delta(
        self, call: OpenCall, step: int, scrub: Scrubber, *, offset: int, delta: str
    ) -> ToolCallDelta:
        """More of its arguments, under the name that is known by then."""
        return ToolCallDelta(
            step=step,
            block_id=call.block_id,
            index=call.position,
            name=scrub.exact(self.name_of(call)),
            offset=offset,
            delta=delta,
        )

    def _candidate(self, entry: Call, name: str) -> OpenCall | None:
        at_index = None if entry.index is None else self._by_index.get(entry.index)
        if entry.id:
            same = [call for call in self.calls if call.id == entry.id]
            if same and name and entry.index is not None and at_index is None:
                return None  # some servers give all calls of a reply one id
            if same:
                return at_index if at_index in same else same[-1]
        if at_index or (entry.index is not None and (entry.id or name)):
            return at_index
        return self.calls[-1] if self.calls else None

    def _starts_anew(self, call: OpenCall, entry: Call, name: str, new: str) -> bool:
        if entry.id and entry.id == call.id:
            settled = bool(name) and call.pieces != ["{}"] and self._complete(call)
            return settled and not self._goes_on(call, new)
        other_id = bool(entry.id and call.id)
        if not name or not call.name:
            return other_id and bool(new.strip()) and self._complete(call)
        if call.blank:
            in_pieces = name not in self._tools and call.name + name in self._tools
            return not in_pieces and _differs_while_blank(call, entry, name)
        if name != call.name or (other_id and new.lstrip()[:1] == "{"):
            return True
        return self._complete(call)

    def _goes_on(self, call: OpenCall, new: str) -> bool:
        return not new.strip() or self._repeats(call, new)

    def _repeats(self, call: OpenCall, new: str) -> bool:
        """Some servers send the whole arguments once more at the end."""
        if new.lstrip()[:1] != "{" or not self._complete(call):
            return False
        try:
            return bool(_anything.decode(new.strip()) == _anything.decode(call.text().strip()))
        except (ValueError, RecursionError):
            return False

    def _complete(self, call: OpenCall) -> bool:
        if call.blank or self._scans == 0 or call.pieces[-1].rstrip()[-1:] not in ("}", ""):
            return False
        self._scans -= 1
        try:
            return isinstance(_anything.decode(call.text().strip()), dict)
        except (ValueError, RecursionError):
            return False

    def _open(self, index: int | None) -> OpenCall:
        if len(self.calls) == MAX_CALLS:
            raise ProviderRefused(
                f"The model asked for more than {MAX_CALLS} tool calls at once.",
                code="reply_too_large",
            )
        call = OpenCall(self._new_block_id(), len(self.calls), index)
        self.calls.append(call)
        return call


def _differs_while_blank(call: OpenCall, entry: Call, name: str) -> bool:
    """No arguments yet: a new id is a new call, and so is a second full head."""
    if entry.id and call.id:
        return True
    if entry.id:
        return name != call.name
    return name != call.name and (entry.type is not None or entry.index is None)


def finished(call: OpenCall, name: str, text: str, *, cut_off: str, scrub: Scrubber) -> ToolCall:
    """The call as a value; `text` is its argument text, scrubbed; `cut_off` says, if it broke off,
    why."""
    arguments, problem = (None, cut_off) if cut_off else _arguments_of(call, text)
    extra = None if call.extra is None else {"extra_content": call.extra}
    return ToolCall(
        block_id=call.block_id,
        tool_call_id=scrub.exact(call.id),
        index=call.position,
        name=scrub.exact(name),
        arguments=scrubbed(arguments, scrub),  # once more: `\u0073` is an `s` only now
        raw_arguments=_beginning(text) if arguments is None else "",
        problem=problem,
        provider_data=scrubbed(extra, scrub),
    )


def _arguments_of(call: OpenCall, text: str) -> tuple[dict[str, Any] | None, str]:
    arguments, problem = parse_arguments(text)
    whole = _repeated_whole(call.pieces) if arguments is None else None
    if whole is None:
        return arguments, problem
    return parse_arguments(whole)


def _repeated_whole(pieces: list[str]) -> str | None:
    """The last word of servers that repeat the beginning with each piece, or that put an empty
    object before the real one; None when the pieces are not exactly that."""
    if len(pieces) > 1 and pieces[0].strip() == "{}" and pieces[1].lstrip()[:1] == "{":
        return "".join(pieces[1:])
    grows = all(later.startswith(piece) for piece, later in pairwise(pieces))
    return pieces[-1] if len(pieces) > 1 and grows else None


def scrubbed(value: dict[str, Any] | None, scrub: Scrubber) -> dict[str, Any] | None:
    """`value` without the key; None when it is nested so deep that nobody can look through it."""
    if value is None or not scrub:
        return value
    try:
        found: dict[str, Any] = scrub.exact_in(value)
    except ValueError:
        return None
    return found


def parse_arguments(text: str, *, inside: bool = False) -> tuple[dict[str, Any] | None, str]:
    """(arguments, "") or (None, why not in words for the model). Never guesses at broken JSON."""
    stripped = text.strip()
    if stripped in ("", "null"):
        return {}, ""
    try:
        value = clean_json(_strict.decode(stripped))
    except RecursionError:
        return None, _not_executed("they are nested too deep")
    except ValueError as error:
        fence = " (send plain JSON, without Markdown fences)" if stripped[:3] == "```" else ""
        return None, _not_executed(f"they are not valid JSON: {error}{fence}")
    if isinstance(value, str) and value.lstrip()[:1] == "{" and not inside:
        return parse_arguments(value, inside=True)  # encoded twice
    if not isinstance(value, dict):
        return None, _not_executed(f"they are {_kind(value)}, not a JSON object")
    return value, ""


def _beginning(text: str) -> str:
    return text.encode()[:MAX_RAW_ARGUMENTS].decode("utf-8", "ignore")


def _not_executed(why: str) -> str:
    return (
        f"The arguments of this call cannot be used: {why}. It was not executed. "
        "Send the call again with one JSON object as its arguments."
    )


def _name(old: str, new: str) -> str:
    """A name comes whole, again, or (rarely) in pieces."""
    if not new or new == old:
        return old
    return new if new.startswith(old) else old + new


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not a JSON number")


def _float(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"the number {cut(text, 40)} is too large")
    return value


def _int(text: str) -> int:
    if len(text) > 20 or not -(2**63) <= int(text) < 2**63:
        raise ValueError(f"the number {cut(text, 40)} does not fit into 64 bits")
    return int(text)


def _kind(value: Any) -> str:
    return {list: "an array", str: "a string", bool: "a truth value"}.get(type(value), "a number")


_anything = json.JSONDecoder(strict=False)
"""Local models write a text's line ends and tabs as they are: within quotes that can mean nothing
else, so it is no guess."""
_strict = json.JSONDecoder(parse_constant=_refuse, parse_float=_float, parse_int=_int, strict=False)
