"""What the C allocator does with memory that Python gave back to it.

glibc keeps an arena for each thread that was ever busy, and after the first large block that is
freed takes blocks of that size from there, too. A long answer passes through several threads; each
would keep the room that it took for a moment, and hundreds of small things would come to lie in it.
"""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8

LARGE_BYTES = 128 * 1024
"""Such blocks come from the system and go back to it when they are freed."""
ARENAS = 2


def bound() -> None:
    """For the whole process, once; does nothing where the C library is another one."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
    mallopt(_M_TRIM_THRESHOLD, LARGE_BYTES)
    mallopt(_M_ARENA_MAX, ARENAS)
