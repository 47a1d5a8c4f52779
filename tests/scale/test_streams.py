"""Every promise of the streams, with web and worker as different processes: the same tests."""

from __future__ import annotations

from tests.e2e.test_streams import *  # noqa: F403
