"""Plots as inline SVG: no script, no font, no file beside the page; colours come from the page's CSS variables."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 720, 340
LEFT, RIGHT, TOP, BOTTOM = 70, 16, 16, 48
LEAST_TICKS = 4
LEAST_SPAN = 12.0
"""A logarithmic axis ends at no less than this many times its begin."""
MAX_POINTS = 1_500
"""Points drawn of one series, evenly chosen: more would only make the page heavy."""


@dataclass(frozen=True, slots=True)
class Series:
    """Points of one kind. `style` is the number of a CSS class, s0 to s6; `joined` points have a line through
    them, in their order."""

    name: str
    style: int
    points: Sequence[tuple[float, float]]
    joined: bool = False


def scatter(series: Sequence[Series], *, x_label: str, y_label: str, diagonal: bool = False) -> str:
    """Points on two logarithmic axes; `diagonal` draws the line y = x."""
    points = [point for one in series for point in one.points]
    if not points:
        return "<p>Nothing to plot.</p>"
    x = _Axis.over([point[0] for point in points], LEFT, WIDTH - RIGHT)
    y = _Axis.over([point[1] for point in points], HEIGHT - BOTTOM, TOP)
    body = _frame(x, y, x_label, y_label)
    if diagonal:
        low, high = max(x.low, y.low), min(x.high, y.high)
        if low < high:
            body.append(_line(x.at(low), y.at(low), x.at(high), y.at(high), "diagonal"))
    for one in series:
        step = max(1, math.ceil(len(one.points) / MAX_POINTS))
        if one.joined:
            path = " ".join(f"{x.at(a):.1f},{y.at(b):.1f}" for a, b in one.points)
            body.append(f'<polyline class="joined s{one.style}" points="{path}"/>')
        marks = "".join(f'<circle cx="{x.at(a):.1f}" cy="{y.at(b):.1f}" r="2.2"/>' for a, b in one.points[::step])
        body.append(f'<g class="dot s{one.style}"><title>{escape(one.name)}</title>{marks}</g>')
    return _svg(body, f"{y_label} against {x_label}") + legend(series)


def histogram(series: Sequence[Series], *, x_label: str, bins: int = 48) -> str:
    """How many points have which x, stacked by series, on a logarithmic axis; y of the points is not used."""
    values = [point[0] for one in series for point in one.points]
    if not values:
        return "<p>Nothing to plot.</p>"
    x = _Axis.over(values, LEFT, WIDTH - RIGHT)
    counts = [[0] * bins for _ in series]
    for row, one in zip(counts, series, strict=True):
        for value, _ in one.points:
            share = (x.at(value) - LEFT) / (WIDTH - RIGHT - LEFT)
            row[min(bins - 1, max(0, int(share * bins)))] += 1
    highest = max(sum(column) for column in zip(*counts, strict=True))
    y = _Axis(0, highest * 1.05, HEIGHT - BOTTOM, TOP, logarithmic=False)
    body = _frame(x, y, x_label, "requests")
    wide = (WIDTH - RIGHT - LEFT) / bins
    for column in range(bins):
        base = 0
        for row, one in zip(counts, series, strict=True):
            if row[column]:
                top, bottom = y.at(base + row[column]), y.at(base)
                body.append(
                    f'<rect class="bar s{one.style}" x="{LEFT + column * wide:.1f}" y="{top:.1f}" '
                    f'width="{wide - 1:.1f}" height="{bottom - top:.1f}"/>'
                )
                base += row[column]
    return _svg(body, f"number of requests by {x_label}") + legend(series)


def legend(series: Sequence[Series]) -> str:
    """The names of the series with their colours, and how many points each has."""
    items = "".join(
        f'<span class="key"><i class="s{one.style}"></i>{escape(one.name)} ({len(one.points):,})</span>'
        for one in series
    )
    return f'<p class="legend">{items}</p>'


@dataclass(frozen=True, slots=True)
class _Axis:
    low: float
    high: float
    first: float
    last: float
    logarithmic: bool = True

    @classmethod
    def over(cls, values: Sequence[float], first: float, last: float) -> _Axis:
        """A logarithmic axis from pixel `first` to pixel `last` that holds all values, and at least a decade; values
        that are not positive lie at its low end."""
        positive = [value for value in values if value > 0] or [1.0]
        low, high = min(positive) * 0.8, max(positive) * 1.25
        if high < low * LEAST_SPAN:
            middle = math.sqrt(low * high)
            low, high = middle / math.sqrt(LEAST_SPAN), middle * math.sqrt(LEAST_SPAN)
        return cls(low, high, first, last)

    def at(self, value: float) -> float:
        scale: Callable[[float], float] = math.log if self.logarithmic else float
        low, high = scale(self.low), scale(self.high)
        return self.first + (scale(max(value, self.low)) - low) / (high - low) * (self.last - self.first)

    def ticks(self) -> list[float]:
        if not self.logarithmic:
            step = 10 ** math.floor(math.log10(max(self.high / 2, 1)))
            return [step * n for n in range(int(self.high / step) + 1)]
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        ticks: list[float] = []
        # 1, 3, 10, 30, ...; finer on a short axis, whole decades only on a long one.
        for steps in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
            ticks = [step * 10.0**n for n in decades for step in steps if self.low <= step * 10.0**n <= self.high]
            if len(ticks) >= LEAST_TICKS:
                break
        return ticks


def _frame(x: _Axis, y: _Axis, x_label: str, y_label: str) -> list[str]:
    body = []
    for value in x.ticks():
        at = x.at(value)
        body.append(_line(at, TOP, at, HEIGHT - BOTTOM, "grid"))
        body.append(_text(at, HEIGHT - BOTTOM + 16, _short(value), "middle"))
    for value in y.ticks():
        at = y.at(value)
        body.append(_line(LEFT, at, WIDTH - RIGHT, at, "grid"))
        body.append(_text(LEFT - 6, at + 4, _short(value), "end"))
    body.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x_label, "middle"))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    place = f'transform="rotate(-90 14 {middle:.0f})" x="14" y="{middle:.0f}" text-anchor="middle"'
    body.append(f"<text {place}>{escape(y_label)}</text>")
    return body


def _short(value: float) -> str:
    for limit, unit in ((1e6, "M"), (1e3, "K")):
        if value >= limit:
            return f"{value / limit:g}{unit}"
    return f"{value:g}"


def _line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    return f'<line class="{style}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(body: Sequence[str], label: str) -> str:
    inside = "".join(body)
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">{inside}</svg>'
