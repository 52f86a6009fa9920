"""A small SVG: the distribution of waits, one curve a policy, readable on light and dark pages."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 720, 300
LEFT, RIGHT, TOP, BOTTOM = 60, 20, 46, 44  # margins
TICKS = [digit * 10.0**decade for decade in range(-4, 5) for digit in (1, 2, 5)]  # seconds
STYLE = """<style>
  text { font: 13px system-ui, sans-serif; fill: #57606a } .title { font-size: 15px; fill: #24292f }
  .grid { stroke: #d0d7de; stroke-width: 1 } path { fill: none; stroke-width: 2.5; stroke-linejoin: round }
  @media (prefers-color-scheme: dark) { text { fill: #8b949e } .title { fill: #e6edf3 } .grid { stroke: #30363d } }
</style>"""


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    color: str
    values: Sequence[float]  # seconds


def distribution(title: str, series: Sequence[Series]) -> str:
    """The share of values at or below each number of seconds, on a logarithmic axis."""
    everything = [value for each in series for value in each.values]
    low = max(tick for tick in TICKS if tick <= min(everything))
    high = min(tick for tick in TICKS if tick >= max(everything))

    def x(value: float) -> float:
        return LEFT + math.log(value / low) / math.log(high / low) * (WIDTH - LEFT - RIGHT)

    def y(share: float) -> float:
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    def text(x: float, y: float, anchor: str, content: str, *, attributes: str = "") -> str:
        return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{attributes}>{content}</text>'

    parts = [STYLE, text(LEFT, 22, "start", title, attributes=' class="title"')]
    for share in (0.0, 0.5, 0.99):
        parts.append(f'<path class="grid" d="M{LEFT} {y(share):.1f}H{WIDTH - RIGHT}"/>')
        parts.append(text(LEFT - 8, y(share) + 4, "end", f"{share:.0%}"))
    for tick in TICKS:
        if low <= tick <= high:
            parts.append(text(x(tick), HEIGHT - BOTTOM + 20, "middle", f"{tick:g} s"))
    for each in series:
        values = sorted(each.values)
        steps = "".join(f"H{x(value):.1f}V{y(number / len(values)):.1f}" for number, value in enumerate(values, 1))
        parts.append(f'<path stroke="{each.color}" d="M{x(values[0]):.1f} {y(0):.1f}{steps}"/>')
        middle = values[len(values) // 2]
        parts.append(text(x(middle) + 8, y(0.5) + 18, "start", each.name, attributes=f' style="fill: {each.color}"'))
    body = "\n".join(parts)
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}">\n{body}\n</svg>\n'
