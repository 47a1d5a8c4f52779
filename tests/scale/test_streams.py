"""Every promise of the streams, with web and worker as different processes: the same tests.

So are those of the main path and of the approvals: whoever decides meets another web process than
whoever asks, and a worker that is neither.
"""

from __future__ import annotations

from tests.e2e.test_approvals import *  # noqa: F403
from tests.e2e.test_main_path import *  # noqa: F403
from tests.e2e.test_streams import *  # noqa: F403

# Of the server, not of the product: scale-out has the same application.
del test_the_same_under_uvicorn  # noqa: F821
