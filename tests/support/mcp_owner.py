"""A process that connects to a server and is then killed: `mcp_owner FOLDER SETTINGS`."""

import asyncio
import sys
from pathlib import Path

from agent.mcp.connections import Connections, Launcher
from agent.mcp.declared import read_servers


async def main() -> None:
    folder, settings = map(Path, sys.argv[1:])
    connections = Connections(Launcher(root=folder))
    for server in read_servers(settings.read_text(), {}).values():
        await connections.look(server)
    sys.stdout.write("connected\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
