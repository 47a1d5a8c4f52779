"""What the agent can do out of the box: one explicit list, in the order the model sees it."""

from __future__ import annotations

from agent.toolbox import Tool
from agent.tools.files import LIST_FILES, READ_FILE
from agent.tools.memory import MEMORY_WRITE
from agent.tools.people import ASK_USER
from agent.tools.search import SEARCH_FILES
from agent.tools.shell import Shell
from agent.tools.skills import Skills
from agent.tools.web import Web
from agent.tools.writes import EDIT_FILE, WRITE_FILE


def builtin_tools(
    *, skills: Skills | None = None, shell: Shell | None = None, web: Web | None = None
) -> list[Tool]:
    """The only list. What reaches beyond the workspace's files is there only when it is given."""
    tools = [LIST_FILES, READ_FILE, SEARCH_FILES, WRITE_FILE, EDIT_FILE, MEMORY_WRITE, ASK_USER]
    if skills is not None:
        tools.append(skills.tool())
    if shell is not None:
        tools.append(shell.tool())
    if web is not None:
        tools.append(web.tool())
    return tools
