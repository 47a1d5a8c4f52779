"""What the demo model computes: quotes against a brief, invoices against quotes. Pure.

Everything is read from the texts that the tools returned; a row that cannot be read is left out.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

_WANTED = re.compile(r"^\|\s*([^|]+?)\s*\|\s*(\d+)\s*\|\s*$", re.MULTILINE)
_BUDGET = re.compile(r"budget\D{0,20}([\d,]+(?:\.\d+)?)", re.IGNORECASE)
_DAYS = re.compile(r"within (\d+) days", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of a quote or an invoice."""

    supplier: str
    item: str
    quantity: int
    price: Decimal
    days: int
    invoice: str


@dataclass(frozen=True, kw_only=True)
class Offer:
    """One supplier's quote, measured by the brief."""

    supplier: str
    total: Decimal
    days: int
    missing: tuple[str, ...]
    late: bool

    @property
    def fits(self) -> bool:
        return not (self.missing or self.late)

    @property
    def remark(self) -> str:
        parts = []
        if self.missing:
            parts.append("does not quote " + ", ".join(self.missing))
        if self.late:
            parts.append("delivers too late")
        return "; ".join(parts) or "everything in time"


@dataclass(frozen=True, kw_only=True)
class Findings:
    """All that the report says."""

    offers: tuple[Offer, ...]
    """The cheapest first."""
    best: Offer | None
    budget: Decimal | None
    days: int | None
    questions: tuple[str, ...]
    """Invoice lines that do not match."""
    invoices: int

    @property
    def conclusion(self) -> str:
        """Whom to choose and what to question, in Markdown."""
        lines = [self._choice()]
        if self.questions:
            lines.append("Question this before paying: " + " ".join(self.questions))
        elif self.invoices:
            lines.append("Every invoice matches its quote.")
        return "\n\n".join(lines)

    def _choice(self) -> str:
        if self.best is None:
            return "No supplier delivers everything in time; the order has to be split."
        text = f"Recommended: **{self.best.supplier}**, {money(self.best.total)} in total, delivered within {self.best.days} days."
        if self.budget is None:
            return text
        left = self.budget - self.best.total
        verdict = f"{money(left)} under" if left >= 0 else f"{money(-left)} over"
        return f"{text} That is {verdict} the budget of {money(self.budget)}."


def findings(texts: Mapping[str, str]) -> Findings:
    """What the texts of files, by path, say about the purchase."""
    brief = next((text for path, text in texts.items() if path.endswith(".md")), "")
    quotes = [
        row for path, text in texts.items() if path.startswith("quotes/") for row in _rows(text)
    ]
    billed = [
        row for path, text in texts.items() if path.startswith("invoices/") for row in _rows(text)
    ]
    wanted = {item: int(quantity) for item, quantity in _WANTED.findall(brief)}
    wanted = wanted or {row.item: row.quantity for row in quotes}
    days = _DAYS.search(brief)
    budget = _BUDGET.search(brief)
    limit = int(days[1]) if days else None
    offers = sorted(_offers(quotes, wanted, limit), key=lambda offer: offer.total)
    return Findings(
        offers=tuple(offers),
        best=next((offer for offer in offers if offer.fits), None),
        budget=_decimal(budget[1].replace(",", "")) if budget else None,
        days=limit,
        questions=tuple(_questions(billed, quotes)),
        invoices=len({row.invoice for row in billed}),
    )


def report(found: Findings) -> str:
    """The report, in Markdown."""
    rows = [
        f"| {offer.supplier} | {money(offer.total)} | {offer.days} days | {offer.remark} |"
        for offer in found.offers
    ]
    limits = [f"Delivery within {found.days} days."] if found.days else []
    if found.budget is not None:
        limits.append(f"Budget {money(found.budget)}.")
    questions = [f"- {question}" for question in found.questions] or ["- None."]
    lines = [
        "# Supplier report",
        "",
        " ".join(["Measured by the brief.", *limits]),
        "",
        "| supplier | total | slowest item | remark |",
        "|---|---:|---:|---|",
        *rows,
        "",
        "## Recommendation",
        "",
        found.conclusion.split("\n\n")[0],
        "",
        "## Invoices to question",
        "",
        *questions,
        "",
    ]
    return "\n".join(lines)


def money(amount: Decimal) -> str:
    return f"{amount:,.2f} EUR"


def _rows(text: str) -> Iterable[Row]:
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("[")]
    try:
        table = list(csv.DictReader(lines))
    except csv.Error:
        return
    for fields in table:
        price = _decimal(fields.get("unit_price") or "")
        quantity = _decimal(fields.get("quantity") or "")
        if price is None or quantity is None:
            continue
        yield Row(
            supplier=fields.get("supplier") or "?",
            item=fields.get("item") or "?",
            quantity=int(quantity),
            price=price,
            days=int(_decimal(fields.get("delivery_days") or "") or 0),
            invoice=fields.get("invoice") or "",
        )


def _decimal(text: str) -> Decimal | None:
    try:
        value = Decimal(text.strip())
    except InvalidOperation:
        return None
    return value if value.is_finite() and abs(value) < 10**12 else None


def _offers(quotes: list[Row], wanted: dict[str, int], limit: int | None) -> Iterable[Offer]:
    for supplier in dict.fromkeys(row.supplier for row in quotes):
        rows = {row.item: row for row in quotes if row.supplier == supplier and row.item in wanted}
        days = max((row.days for row in rows.values()), default=0)
        yield Offer(
            supplier=supplier,
            total=sum((row.price * wanted[item] for item, row in rows.items()), Decimal(0)),
            days=days,
            missing=tuple(item for item in wanted if item not in rows),
            late=limit is not None and days > limit,
        )


def _questions(billed: list[Row], quotes: list[Row]) -> Iterable[str]:
    quoted = {(row.supplier, row.item): row for row in quotes}
    for row in billed:
        quote = quoted.get((row.supplier, row.item))
        where = f"Invoice {row.invoice} of {row.supplier}, {row.item}:"
        if quote is None:
            yield f"{where} was never quoted ({money(row.price * row.quantity)})."
        elif row.price != quote.price:
            more = (row.price - quote.price) * row.quantity
            yield f"{where} {money(row.price)} instead of {money(quote.price)} each, {money(more)} in all."
        elif row.quantity != quote.quantity:
            yield f"{where} {row.quantity} pieces instead of {quote.quantity}."
