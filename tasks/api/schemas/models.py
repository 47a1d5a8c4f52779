"""Models with their prices, and what was used of them."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel

from tasks import profiles
from tasks.models import ModelProfile


class PricesOut(BaseModel):
    """Per million tokens."""

    input: float
    cached: float | None
    """Of input that the provider had cached; null: as other input."""
    output: float
    currency: str


class ModelOut(BaseModel):
    id: str
    name: str
    model: str
    context_size: int
    prices: PricesOut | None
    is_default: bool

    @classmethod
    def of(cls, profile: ModelProfile) -> ModelOut:
        prices = profiles.prices_of(profile)
        return cls(
            id=str(profile.pk),
            name=profile.name,
            model=profile.model,
            context_size=profiles.context_of(profile),
            prices=None
            if prices is None
            else PricesOut(
                input=prices.input,
                cached=prices.cached,
                output=prices.output,
                currency=profile.currency,
            ),
            is_default=profile.is_default,
        )


class ModelList(BaseModel):
    items: Sequence[ModelOut]
    next: str | None


class UsageSums(BaseModel):
    calls: int
    seconds: float
    tokens: int
    """Fresh work: without the input that providers had cached."""
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    reasoning_tokens: int
    cost: float | None
    """null: no price of any call is known."""
    complete: bool
    """False: some calls have no price and are not in `cost`."""
    estimated: bool
    """Some tokens were counted by Pilothouse, because the provider did not say."""


class UsageItem(UsageSums):
    key: str
    """The day, or the id of the session or user."""
    name: str


class UsageOut(BaseModel):
    by: str
    since: str
    until: str
    currency: str
    items: Sequence[UsageItem]
    next: str | None = None
    total: UsageSums
