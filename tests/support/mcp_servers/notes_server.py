"""A small MCP server written with the SDK: `notes_server.py stdio` or `notes_server.py http PORT`."""

import sys
from pathlib import Path

from mcp.server import MCPServer

server = MCPServer("notes")


@server.tool()
def search(path: str, word: str) -> list[str]:
    """Lines of a note that hold a word."""
    return [line for line in Path(path).read_text().splitlines() if word in line]


@server.tool()
def count(words: list[str]) -> dict[str, int]:
    """How often each word comes."""
    return {word: words.count(word) for word in words}


if sys.argv[1] == "stdio":
    server.run("stdio")
else:
    server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
