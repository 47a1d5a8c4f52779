"""What this agent says of itself: AG-UI's `AgentCapabilities`."""

from __future__ import annotations

from typing import Any

from django.conf import settings

from tasks import toolboxes
from tasks.conf import conf
from tasks.service import MODES


def capabilities() -> dict[str, Any]:
    """As the settings are now. Only what holds for every run: a workspace, a session or a request
    can be stricter."""
    return {
        "identity": {
            "name": "Pilothouse",
            "type": "pilothouse",
            "description": "Works on the files of one workspace; asks before it changes anything.",
            "version": settings.VERSION,
        },
        "transport": {
            "streaming": True,
            "websocket": False,
            "httpBinary": False,
            "pushNotifications": False,
            "resumable": False,  # by a number; the same runId gives the whole run again
        },
        "tools": {"supported": True, "items": _tools(), "clientProvided": False}
        | {"parallelCalls": True},
        "state": {"snapshots": False, "deltas": False, "persistentState": False},
        "multiAgent": {"supported": False},
        "reasoning": {"supported": True, "streaming": True, "encrypted": False},
        "multimodal": {
            "input": dict.fromkeys(("image", "audio", "video", "pdf", "file"), False),
            "output": {"image": False, "audio": False},
        },
        "execution": _execution(),
        "humanInTheLoop": {
            "supported": True,
            "approvals": True,
            "interrupts": True,
            "approveWithEdits": True,
        },
        "custom": {
            "pilothouse": {
                "mode": conf().mode,
                "modes": list(MODES),
                "forwardedProps": ["mode", "workspace_id"],
            }
        },
    }


def _tools() -> list[dict[str, Any]]:
    return [
        {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
            "metadata": {"pilothouse": {"capability": tool.capability, "risk": tool.risk}},
        }
        for tool in toolboxes.own_tools().tools
    ]


def _execution() -> dict[str, Any]:
    limits = conf()
    return {
        "codeExecution": limits.enable_shell,
        "sandboxed": not limits.shell_unsandboxed,
        "maxIterations": limits.max_agent_steps,
        "maxExecutionTime": round(limits.max_task_seconds * 1000),  # milliseconds
    }
