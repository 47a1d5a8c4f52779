"""Small pictures of a few series of numbers: a line of text each, and an SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

BLOCKS = "▁▂▃▄▅▆▇█"
WIDTH, HEIGHT, GAP = 640, 60, 26


def sparkline(values: Sequence[float], width: int = 60) -> str:
    """From zero up, so that what is flat looks flat."""
    top = max(values, default=0) or 1
    return "".join(BLOCKS[round(value / top * (len(BLOCKS) - 1))] for value in _thin(values, width))


def svg(series: Mapping[str, Sequence[float]], title: str) -> str:
    """One below the other, each from zero to its greatest value."""
    rows = [
        _row(name, values, 30 + n * (HEIGHT + GAP))
        for n, (name, values) in enumerate(series.items())
    ]
    height = 30 + len(series) * (HEIGHT + GAP)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH + 20}" height="{height}"'
        ' font-family="sans-serif" font-size="12" fill="#333">'
        f'<rect width="100%" height="100%" fill="#fff"/><text x="10" y="18">{title}</text>'
        f"{''.join(rows)}</svg>\n"
    )


def _row(name: str, values: Sequence[float], top: int) -> str:
    most = max(values, default=0) or 1
    step = WIDTH / max(1, len(values) - 1)
    points = " ".join(
        f"{10 + n * step:.1f},{top + HEIGHT - value / most * HEIGHT:.1f}"
        for n, value in enumerate(values)
    )
    return (
        f'<text x="10" y="{top + HEIGHT + 16}">{name}, up to {most:,.1f}</text>'
        f'<line x1="10" x2="{WIDTH + 10}" y1="{top + HEIGHT}" y2="{top + HEIGHT}" stroke="#ccc"/>'
        f'<polyline points="{points}" fill="none" stroke="#2a6" stroke-width="1.5"/>'
    )


def _thin(values: Sequence[float], width: int) -> list[float]:
    if len(values) <= width:
        return list(values)
    return [values[n * len(values) // width] for n in range(width)]
