#!/usr/bin/env python3
"""Checks a signed export of Pilothouse. Needs this file, the export and Python, nothing else.

    python verify_export.py EXPORT.zip [--public-key HEX] [--audit-key HEX|FILE]

1. The Ed25519 signature over the manifest. Without --public-key the key in the export itself is
   used: then compare its fingerprint with the one that the server's administrator tells you.
2. Every file against the manifest: nothing missing, nothing added, not a byte changed; numbers
   without gaps; the chain's head where the manifest says.
3. With --audit-key (64 hexadecimal digits, or a file that holds them) every link of every hash
   chain: this names the first entry that was changed, even where the server itself was fooled.

Exit status: 0 whole, 1 not what the server signed, 2 cannot be read.
"""

from __future__ import annotations

import argparse
import hashlib
import hmac
import json
import re
import sys
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FORMAT = "pilothouse-export/1"
MANIFEST, SIGNATURE = "manifest.json", "manifest.sig"
MAX_MANIFEST = 64 * 1024 * 1024
MAX_LINE = 64 * 1024 * 1024

_TEXT = rb'"(?:[^"\\\x00-\x1f]|\\.)*"'
EVENT = re.compile(
    rb'\{"sequence":(\d+),"position":\d+,"type":("[a-z_]+"),"task_id":("[0-9a-f-]{36}"),'
    rb'"created_at":("[0-9T:.Z-]+"),"payload":(\{.*\}),"hash":"([0-9a-f]{64})"\}'
)
ENTRY = re.compile(
    rb'\{"sequence":(\d+),"created_at":("[0-9T:.Z-]+"),"by":(%b),"action":(%b),'
    rb'"object_type":(%b),"object_id":(%b),"details":(\{.*\}),"hash":"([0-9a-f]{64})"\}'
    % ((_TEXT,) * 4)
)
"""One line each: the texts stand in it exactly as they were hashed."""


class Unreadable(Exception):
    """This is no export, or not one that this program knows."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check a signed export of Pilothouse.")
    parser.add_argument("export", type=Path)
    parser.add_argument(
        "--public-key", metavar="HEX", help="of the server, from a source you trust"
    )
    parser.add_argument(
        "--audit-key", metavar="HEX|FILE", help="64 hexadecimal digits, or their file"
    )
    given = parser.parse_args(arguments)
    try:
        public_key = _key(given.public_key, "--public-key")
        audit_key = _key(given.audit_key, "--audit-key")
        with zipfile.ZipFile(given.export) as archive:
            problems = list(check(archive, public_key, audit_key))
    except (Unreadable, OSError, EOFError, zlib.error, zipfile.BadZipFile, RuntimeError) as error:
        print(_shown(f"{given.export}: cannot be read: {error}"), file=sys.stderr)  # noqa: T201
        return 2
    for problem in problems:
        print(_shown(f"NOT WHOLE  {problem}"))  # noqa: T201
    print("not what was signed" if problems else "whole")  # noqa: T201
    return 1 if problems else 0


def check(
    archive: zipfile.ZipFile, public_key: bytes | None, audit_key: bytes | None
) -> Iterator[str]:
    """What is wrong, one sentence each; nothing when the export is whole."""
    _look_at(archive)
    names = archive.namelist()
    body, signature = _small(archive, MANIFEST), _small(archive, SIGNATURE)
    manifest = _manifest(body)
    own_key = bytes.fromhex(manifest["public_key"])
    _say(manifest, own_key, public_key is not None, audit_key is not None)
    if public_key is not None and public_key != own_key:
        yield "the manifest names another key than the one you gave"
    if not verify(public_key or own_key, body, signature):
        yield "the signature does not fit the manifest"
    listed = {chain["file"] for chain in manifest["chains"]}
    for name in sorted(set(names) - listed - {MANIFEST, SIGNATURE}):
        yield f"{name!r} is not in the manifest"
    for chain in manifest["chains"]:
        yield from _check_chain(archive, names, chain, audit_key)


def _look_at(archive: zipfile.ZipFile) -> None:
    names = archive.namelist()
    if len(names) != len(set(names)):
        raise Unreadable("two files in it have the same name")
    packings = {each.compress_type for each in archive.infolist()}
    if packings - {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise Unreadable("it is packed in another way than exports are")


def _shown(text: str) -> str:
    """For a terminal, which must not obey what a forger wrote into an export."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _say(manifest: dict[str, Any], key: bytes, trusted: bool, chained: bool) -> None:
    what, made = f"{manifest['what']} {manifest['id']}".strip(), manifest["made_at"]
    server = f" from {manifest['server']}" if manifest["server"] else ""
    print(_shown(f"{what}, exported {made} by {manifest['made_by']}{server}"))  # noqa: T201
    source = "the one you gave" if trusted else "from the export itself: compare it"
    print(f"public key {key.hex()} ({source})")  # noqa: T201
    if not chained:
        print("hash chains: heads and counts only (--audit-key checks every link)")  # noqa: T201


def _check_chain(
    archive: zipfile.ZipFile, names: list[str], chain: dict[str, Any], audit_key: bytes | None
) -> Iterator[str]:
    called, name = f"{chain['kind']} {chain['id']}".strip(), chain["file"]
    if chain["problem"]:
        yield f"{called}: broken on the server already: {chain['problem']}"
    if name not in names:
        yield f"{called}: {name} is missing"
        return
    digest, bad = hashlib.sha256(), ""
    count, head = chain["pruned"], chain["pruned_head"] or "0" * 64
    if count:
        print(_shown(f"{called}: the entries up to {count} were pruned"))  # noqa: T201
    for line in _lines(archive, name):
        digest.update(line)
        if not bad:
            count += 1
            head, bad = _follow(chain, count, head, line, audit_key)
    if bad:
        yield f"{called}: {bad}"
    elif (count, head if count else "") != (chain["count"], chain["head"]):
        yield f"{called}: ends at {count} with another head than the manifest's {chain['count']}"
    if digest.hexdigest() != chain["sha256"]:
        yield f"{called}: {name} is not the file that was signed"


def _follow(
    chain: dict[str, Any], number: int, previous: str, line: bytes, audit_key: bytes | None
) -> tuple[str, str]:
    """The hash of the next line, and what is wrong with it."""
    audit = chain["kind"] == "audit"
    found = (ENTRY if audit else EVENT).fullmatch(line.removesuffix(b"\n"))
    if found is None or not line.endswith(b"\n"):
        return previous, f"line {number} is not an entry as the server writes them"
    sequence, *texts, stored = found.groups()
    if sequence != str(number).encode():
        return previous, f"number {number} is missing or misplaced"
    if audit:
        record = b"[%b,%b]" % (sequence, b",".join(texts))
    else:
        kind, task_id, created_at, payload = texts
        if task_id.decode() != json.dumps(chain["id"]):
            return previous, f"number {number} belongs to another task"
        record = b"[%b]" % b",".join((task_id, sequence, kind, created_at, payload))
    if audit_key is not None:
        expected = hmac.new(audit_key, previous.encode() + record, hashlib.sha256).hexdigest()
        if not hmac.compare_digest(expected, stored.decode()):
            return previous, f"number {number} does not match its hash"
    return stored.decode(), ""


# ── reading ───────────────────────────────────────────────────────────────────────────────────


def _key(text: str | None, name: str) -> bytes | None:
    if text is None:
        return None
    if Path(text).is_file():
        text = Path(text).read_text(encoding="ascii")
    if not re.fullmatch(r"[0-9a-fA-F]{64}", text.strip()):
        raise Unreadable(f"{name} takes 64 hexadecimal digits")
    return bytes.fromhex(text.strip())


def _small(archive: zipfile.ZipFile, name: str) -> bytes:
    try:
        with archive.open(name) as file:
            body = file.read(MAX_MANIFEST + 1)
    except KeyError:
        raise Unreadable(f"there is no {name} in it") from None
    if len(body) > MAX_MANIFEST:
        raise Unreadable(f"{name} is too large")
    return body


_TEXTS = ("kind", "id", "file", "head", "sha256", "problem", "pruned_head")
_CHAIN: dict[str, type] = {"count": int, "pruned": int, **dict.fromkeys(_TEXTS, str)}


def _manifest(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
        good = found["format"] == FORMAT and re.fullmatch(r"[0-9a-f]{64}", found["public_key"])
        texts = all(isinstance(found[name], str) for name in ("what", "id", "made_at", "made_by", "server"))  # fmt: skip
        chains = all(
            isinstance(chain[name], kind) for chain in found["chains"] for name, kind in _CHAIN.items()
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Unreadable(f"the manifest is none of ours ({type(error).__name__})") from None
    if not (good and texts and chains):
        raise Unreadable(f"the manifest is not of the form {FORMAT}")
    return dict(found)


def _lines(archive: zipfile.ZipFile, name: str) -> Iterator[bytes]:
    with archive.open(name) as file:
        while line := file.readline(MAX_LINE):
            yield line


# ── Ed25519 (RFC 8032), in whole numbers ──────────────────────────────────────────────────────

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
ROOT = pow(2, (P - 1) // 4, P)
Point = tuple[int, int, int, int]
"""X, Y, Z, T with x = X/Z, y = Y/Z, x·y = T/Z"""


def verify(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether the owner of `public_key` signed `message`."""
    key, commitment = _point(public_key), _point(signature[:32])
    scalar = int.from_bytes(signature[32:], "little")
    if len(signature) != 64 or key is None or commitment is None or scalar >= ORDER:
        return False
    digest = hashlib.sha512(signature[:32] + public_key + message).digest()
    challenge = int.from_bytes(digest, "little") % ORDER
    return _same(_times(scalar, BASE), _plus(commitment, _times(challenge, key)))


def _plus(one: Point, other: Point) -> Point:
    a = (one[1] - one[0]) * (other[1] - other[0]) % P
    b = (one[1] + one[0]) * (other[1] + other[0]) % P
    c = 2 * one[3] * other[3] * D % P
    d = 2 * one[2] * other[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def _times(scalar: int, point: Point) -> Point:
    total = (0, 1, 1, 0)
    while scalar:
        if scalar & 1:
            total = _plus(total, point)
        point, scalar = _plus(point, point), scalar >> 1
    return total


def _same(one: Point, other: Point) -> bool:
    return (one[0] * other[2] - other[0] * one[2]) % P == 0 == (one[1] * other[2] - other[1] * one[2]) % P  # fmt: skip


def _point(encoded: bytes) -> Point | None:
    """The point with this y and this sign of x; None when the curve has none."""
    number = int.from_bytes(encoded, "little")
    sign, y = number >> 255, number & (2**255 - 1)
    if len(encoded) != 32 or y >= P:
        return None
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * ROOT % P
    if (x * x - square) % P or (x == 0 and sign):
        return None
    if x & 1 != sign:
        x = P - x
    return x, y, 1, x * y % P


_BASE = _point((4 * pow(5, -1, P) % P).to_bytes(32, "little"))
assert _BASE is not None
BASE: Point = _BASE


if __name__ == "__main__":
    sys.exit(main())
