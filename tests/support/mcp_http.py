"""An MCP server over HTTP, in a thread: good or bad, and it keeps what it was sent."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class HttpServer:
    """`mode` may be changed while it runs: "" is good."""

    def __init__(self) -> None:
        self.mode = ""
        self.seen: list[Message] = []
        """The headers of every request."""
        self.elsewhere = False
        """A redirect to another host was followed."""
        self.sessions = 0
        """That began; one that is older than the newest is not known any more."""
        self.called = threading.Event()
        self.unheard = threading.Event()
        """With `mode` "deaf" a GET is refused while a call is under way."""
        self.released = threading.Event()
        """With `mode` "apart" the call "slow" waits for it, and every other has a 404."""
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.port = self._http.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


def _handler(server: HttpServer) -> type[BaseHTTPRequestHandler]:
    return type("Handler", (_Handler,), {"ours": server})


class _Handler(BaseHTTPRequestHandler):
    ours: HttpServer

    def do_POST(self) -> None:
        self.ours.seen.append(self.headers)
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.ours.elsewhere |= self.path != "/mcp"
        if "id" not in message:
            self._send(202, b"")
        elif message["method"] == "tools/call" and self._session_is_over():
            status = 400 if self.ours.mode == "words" else 404
            self._error(status, None, -32001, "Session not found")
        elif self.ours.mode == "deaf" and message["method"] == "tools/call":
            self._refuse(message["id"], after=self.ours.unheard)
        elif self.ours.mode == "apart" and message["method"] == "tools/call":
            if message["params"]["arguments"]["q"] == "slow":
                self._refuse(message["id"], after=self.ours.released)
            else:
                self._error(404, message["id"], -32601, "No such tool")
        elif self.ours.mode not in ("", "words", "deaf", "apart"):
            self._send(*self._bad(self.ours.mode))
        else:
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": self._result(message)}
            began = message["method"] == "initialize"
            self.ours.sessions += began
            self._send(
                200,
                json.dumps(answer).encode(),
                {"Mcp-Session-Id": f"s{self.ours.sessions}"} if began else None,
            )

    def do_GET(self) -> None:
        if self.ours.mode == "deaf":
            self.ours.called.wait(10)
        self._send(404 if self.ours.mode == "deaf" else 405, b"")
        self.ours.unheard.set()

    def _refuse(self, number: int, after: threading.Event) -> None:
        self.ours.called.set()
        after.wait(10)
        self._error(200, number, -32000, "No tea")

    def _error(self, status: int, number: int | None, code: int, words: str) -> None:
        error = {"code": code, "message": words}
        self._send(status, json.dumps({"jsonrpc": "2.0", "id": number, "error": error}).encode())

    def _session_is_over(self) -> bool:
        return self.headers["Mcp-Session-Id"] != f"s{self.ours.sessions}"

    def _bad(self, mode: str) -> tuple[int, bytes, dict[str, str]]:
        return {
            "elsewhere": (307, b"", {"Location": f"http://localhost:{self.ours.port}/other"}),
            "packed": (200, b"x", {"Content-Encoding": "gzip"}),
            "huge": (200, b" " * 34_000_000, {}),
            "500": (500, b"a traceback with secrets", {}),
        }[mode]

    def _result(self, message: dict[str, Any]) -> dict[str, Any]:
        match message["method"]:
            case "initialize":
                return {
                    "protocolVersion": message["params"]["protocolVersion"],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "near", "version": "0"},
                }
            case "tools/list":
                schema = {"type": "object", "properties": {"q": {"type": "string"}}}
                return {"tools": [{"name": "echo", "inputSchema": schema}]}
        arguments = message["params"]["arguments"]
        token = str(self.headers["X-Token"])
        text = token if arguments["q"] == "token" else json.dumps(arguments)
        return {"content": [{"type": "text", "text": text}]}

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        named = {"Content-Type": "application/json", **(headers or {})}
        for name, value in {**named, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        with suppress(BrokenPipeError, ConnectionResetError):  # the client has had enough
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass
