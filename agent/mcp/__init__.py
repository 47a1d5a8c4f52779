"""The client of MCP servers: what the settings declare, what a server says of its tools, and the
connections of a run.

Nothing of the SDK is loaded before a run calls a server: only `link`, `pipes`, `remote` and `sieve`
know it, and only `connections` loads these, in a thread.
"""
