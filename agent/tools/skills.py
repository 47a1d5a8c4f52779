"""expand_skill: the text of a skill that the prompt only names."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from agent.skills import MAX_NAME, NAME, Library
from agent.toolbox import Reach, Tool, ToolContext, ToolResult
from agent.workspace import Workspace


@dataclass(frozen=True)
class Skills:
    """The tool over one library."""

    library: Library

    def tool(self) -> Tool:
        return Tool(
            name="expand_skill",
            description=(
                "Read a skill: how a kind of work is done here. The prompt names those that there "
                "are; read the one that fits before you begin with the work."
            ),
            parameters={
                "type": "object",
                "properties": {"name": {"type": "string", "pattern": NAME, "maxLength": MAX_NAME}},
                "required": ["name"],
                "additionalProperties": False,
            },
            capability="skill:read",
            run=partial(expand_skill, self.library),
            reach=partial(skill_reach, self.library),
        )


def expand_skill(library: Library, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
    skill, text = library.read(arguments["name"], context.workspace)
    return ToolResult(
        ok=True,
        content=f"Skill {skill.name} ({skill.source}): {skill.description}\n\n{text}",
        details={"name": skill.name, "source": skill.source, "characters": len(text)},
    )


def skill_reach(library: Library, arguments: dict[str, Any], workspace: Workspace) -> Reach:
    """The file, where it is one of the workspace: rules about paths count."""
    skill, _ = library.read(arguments["name"], workspace)
    return Reach(paths=(skill.path,) if skill.path else ())
