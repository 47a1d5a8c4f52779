"""What can go wrong in the engine, as sentences.

AgentError
├── ProviderError         the model's server failed or refused
│   ├── ProviderRefused       it understood and said no: repeating the same request is useless
│   ├── ProviderUnavailable   no connection, 429, 5xx: worth another try
│   └── ProviderIncomplete    the reply broke off: nothing of it counts, worth another try
├── PathRefused           the guard: this path is not for tools
├── TargetChanged         the file is not the one that was approved
├── ToolFailed            a tool says so itself; its message goes to the model
└── OutOfTime             the task's seconds are used up: the engine's own way to its end

A tool failure is a result for the model and a provider failure is a `task_failed` event; neither
leaves `agent.loop.run()` as an exception. Only bugs and cancellation do.
"""

from __future__ import annotations


class AgentError(Exception):
    """The engine could not go on."""


class ProviderError(AgentError):
    """The model did not answer."""

    retryable = False
    otherwise = "Try again, or choose another model."
    """What the person can do when nothing better is known."""

    def __init__(
        self,
        message: str,
        *,
        code: str = "provider_error",
        hint: str = "",
        status: int | None = None,
        retry_after: float | None = None,
        adapted: bool = False,
    ) -> None:
        super().__init__(message)
        self.code = code
        """Stable identifier, e.g. `provider_auth`, `provider_rate_limited`, `context_overflow`."""
        self.hint = hint or self.otherwise
        """What the person can do about it."""
        self.status = status
        """HTTP status, when there was one."""
        self.retry_after = retry_after
        """Seconds that the server asked us to wait at least."""
        self.adapted = adapted
        """The provider dropped what was refused: the same call is worth one immediate try."""


class ProviderRefused(ProviderError):
    """The provider refused the request."""


class ProviderUnavailable(ProviderError):
    """The provider could not be reached or is overloaded."""

    retryable = True


class ProviderIncomplete(ProviderError):
    """The model's reply broke off before its end."""

    retryable = True
    otherwise = (
        "Try again. If it happens again, look at the model's server and at what stands in between, "
        "or choose another model."
    )


class PathRefused(AgentError):
    """The path is outside what tools may touch."""


class TargetChanged(AgentError):
    """The target changed since the approval was asked for."""


class ToolFailed(AgentError):
    """The tool could not do it; the message tells the model what to do instead."""


class OutOfTime(AgentError):
    """The task's seconds are used up."""
