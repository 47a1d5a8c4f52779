"""A body that is read in a thread, block by block, as fast as its reader takes it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BufferedReader
from typing import IO

from django.http import HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils.http import content_disposition_header

BLOCK_BYTES = 256 * 1024
SMALL_BYTES = 1024 * 1024
"""So much is read before anything is sent."""


class Blocks:
    """Blocks for the event loop; closed behind the last one, or by Django when the reader left."""

    def __init__(self, blocks: Iterator[bytes], close: Callable[[], None]) -> None:
        self._blocks = blocks
        self.close = close

    @classmethod
    def of(cls, file: IO[bytes]) -> Blocks:
        """The rest of a file."""
        return cls(iter(lambda: file.read(BLOCK_BYTES), b""), file.close)

    def __aiter__(self) -> Blocks:
        return self

    async def __anext__(self) -> bytes:
        block = await asyncio.to_thread(next, self._blocks, b"")
        if not block:
            self.close()
            raise StopAsyncIteration
        return block


class Torn(Exception):
    """The file was changed while it was being sent; what was sent is not what was promised."""


@dataclass(frozen=True)
class Download:
    """An open file whose content had this digest a moment ago. Whoever has it closes it."""

    source: BufferedReader
    size: int
    sha256: str

    def blocks(self) -> Iterator[bytes]:
        """The bytes, never more than `size`: a client would take those for the next answer. The last
        ones only come if all of them have the digest: else `Torn`."""
        digest, held, left = hashlib.sha256(), b"", self.size
        with self.source:
            while block := self.source.read(BLOCK_BYTES):
                digest.update(block)
                left -= len(block)
                if left < 0:
                    break
                if held:
                    yield held
                held = block
            if left or digest.hexdigest() != self.sha256:
                raise Torn("The file changed while it was being read.")
            yield held

    def read(self) -> bytes:
        """All of it. Raises Torn."""
        return b"".join(self.blocks())


async def attachment(download: Download, name: str, media_type: str) -> HttpResponseBase:
    """The file as a download that nothing shows. Raises Torn, of a small one."""
    headers = {
        "Content-Type": media_type,
        "Content-Length": str(download.size),
        "Content-Disposition": str(content_disposition_header(True, name)),
        "Cache-Control": "private, no-store",
        "ETag": f'"{download.sha256}"',
    }
    if download.size <= SMALL_BYTES:
        return HttpResponse(await asyncio.to_thread(download.read), headers=headers)
    return StreamingHttpResponse(Blocks(download.blocks(), download.source.close), headers=headers)


def file_name(path: str) -> str:
    """The last part of a path, without what has no look of its own: it stands in headers."""
    name = path.replace("\\", "/").rpartition("/")[2]
    return "".join(sign if sign.isprintable() else "_" for sign in name) or "file"
