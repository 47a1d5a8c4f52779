"""What a test needs of the machine that it runs on."""

from __future__ import annotations

import pytest

from agent.sandbox import bubblewrap

needs_sandbox = pytest.mark.skipif(bubblewrap() is None, reason="needs a working bubblewrap")
