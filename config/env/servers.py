"""The MCP servers that there are: a JSON text, or the path of a file with one."""

from __future__ import annotations

from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

from agent.mcp.declared import Misdeclared, Server, read_servers
from config.env.reader import Reader


def mcp_servers(env: Reader, name: str, var_dir: Path) -> dict[str, Server]:
    text = env.text(name)
    if not text:
        return {}
    try:
        found = read_servers(text if text.startswith(("{", "[")) else _file(env, name), env.values)
    except Misdeclared as error:
        raise ImproperlyConfigured(f"{name}: {error}.") from None
    state, root = var_dir.resolve(), env.root.resolve()
    for server in found.values():
        for folder in map(Path.resolve, server.reads):
            shows_state = folder == state or state in folder.parents or folder in state.parents
            if shows_state or folder == root or folder in root.parents:  # where .env lies
                raise ImproperlyConfigured(
                    f"{name}: {server.name}: reads: {folder} would show keys of Pilothouse; write"
                    " narrower folders."
                )
    return found


def _file(env: Reader, name: str) -> str:
    path = env.path(name, "")
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ImproperlyConfigured(
            f"{name}: write a JSON object of servers, or the path of a file with one; {path} cannot"
            f" be read: {why}."
        ) from error
