"""The end of a process that was told to stop and does not: the last resort of servers and workers."""

from __future__ import annotations

import logging
import os
import threading

logger = logging.getLogger(__name__)


def exit_after(seconds: float) -> None:
    """End this process after so long, whatever tool, view or library hangs; status 1."""
    timer = threading.Timer(seconds, _end, [seconds])
    timer.daemon = True
    timer.start()


def _end(seconds: float) -> None:
    logger.critical("Not everything ended within %s s: leaving", seconds)
    logging.shutdown()
    os._exit(1)
