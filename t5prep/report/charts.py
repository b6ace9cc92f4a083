"""Draw charts as SVG for pages. The page sets the colours by CSS variables, so one drawing serves light and dark mode.

matplotlib draws without a browser or a network. No text of a user is drawn in a chart, because matplotlib would parse `$`
as mathematics. Such texts are in the tables of the page.
"""

import io
import itertools
import re
from collections.abc import Mapping, Sequence

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

# Placeholder colours, which matplotlib uses nowhere itself. `_svg` replaces them by the page's CSS variables.
_INK, _QUIET, _GRID = "#010203", "#010204", "#010205"
SERIES = ("#010206", "#010207")
_VARIABLES = {_INK: "ink", _QUIET: "quiet", _GRID: "grid", SERIES[0]: "one", SERIES[1]: "two"}
# Size in inches and font in points for a column of about 500 pixels. At half the size, on a telephone, it is readable.
_SIZE, _FONT = (5.6, 2.7), 10
_LOW = (5.6, 1.7)  # for charts that only show whether values are even
# Maximum number of bars of a histogram. More would be too thin to read.
_BARS = 48
# Maximum number of widths of a bar that are tried.
_WIDTHS = 1 << 14


def histogram(counts: Mapping[int, int], *, step: int, limit: int, quantity: str) -> str:
    """Return the SVG of a histogram, with a line at `limit` and another colour above it.

    `counts` maps the upper end of a bucket to its count. Buckets are `step` wide. A limit far above the longest text is
    named beside the chart. The last bar includes all longer texts: a few very long texts would leave no space for others.
    `quantity` is the label of the axis.
    """
    longest = max(counts, default=0)
    near = limit <= 3 * longest
    # The axis ends above the limit, and includes 95 % of the texts. It includes 99.5 % if that needs at most 1.6 limits.
    last = (
        longest
        if not near
        else max(limit + step, _reached(counts, 0.95), min(_reached(counts, 0.995), round(1.6 * limit)))
    )
    width = step * max(1, -(-last // (step * _BARS)))
    # Prefer a width that divides the limit, so that no bar mixes cut and uncut texts.
    wider_widths = itertools.islice(range(width, 2 * width + 1, step), _WIDTHS)
    width = next((wider for wider in wider_widths if limit % wider == 0), width)
    bars = [0] * (-(-last // width))
    for bucket, number in counts.items():
        bars[min(-(-bucket // width), len(bars)) - 1] += number
    if longest > width * len(bars):
        quantity += f"; the last bar: all over {width * (len(bars) - 1):,}"
    figure, axes = _axes()
    for is_over_limit, colour in ((False, SERIES[0]), (True, SERIES[1])):
        of = [i for i in range(len(bars)) if bars[i] and (width * i >= limit) == is_over_limit]
        axes.bar([width * i for i in of], [bars[i] for i in of], width=width * 0.92, align="edge", color=colour)
    if near:
        axes.axvline(limit, color=_INK, linewidth=1.2, linestyle=(0, (4, 2)))
    right = limit > 0.7 * width * len(bars)
    axes.annotate(
        f"limit {limit:,}" if near else f"limit {limit:,} →",
        (limit if near else width * len(bars), 1),
        (-5 if right else 5, -2),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        va="top",
        ha="right" if right else "left",
        color=_INK,
        fontsize=_FONT,
    )
    axes.set_xlabel(quantity)
    axes.set_xlim(0, width * len(bars))
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.margins(y=0.12)
    return _svg(figure, label=f"Histogram of {quantity}; the limit is {limit:,}")


def curves(
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    quantity: str,
    log: bool = False,
    zero: bool = False,
) -> str:
    """Return the SVG of lines over steps. `lines` maps "training" or "evaluation" to (steps, values).

    Lines of more than 600 points are thinned evenly, except for the last point. With `log`, the scale is logarithmic.
    With `zero`, it begins at 0, for quantities such as a speed.
    """
    figure, axes = _axes()
    colours = dict(zip(("training", "evaluation"), SERIES, strict=True))
    for name, (steps, values) in lines.items():
        every = max(1, len(steps) // 600)
        indices = sorted({*range(0, len(steps), every), len(steps) - 1} - {-1})
        marker = "o" if len(indices) < 25 else ""
        axes.plot(
            [steps[i] for i in indices],
            [values[i] for i in indices],
            color=colours.get(name, SERIES[0]),
            label=name,
            marker=marker,
            markersize=3,
            lw=1.4,
        )
    if len(lines) > 1:
        axes.legend(frameon=False, fontsize=_FONT, labelcolor=_INK)
    if log:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
        axes.yaxis.set_minor_locator(NullLocator())
    if zero:
        axes.set_ylim(0, max(1e-9, 1.15 * max((max(values) for _, values in lines.values() if values), default=1)))
    axes.set_xlabel("step")
    return _svg(figure, label=f"{quantity} over steps")


def steps(values: Sequence[float], *, quantity: str, name: str) -> str:
    """Return the SVG of one value for each item in order, such as the sizes of shards, from zero.

    `name` makes the ids inside the SVG unique if several charts have the same `quantity`.
    """
    figure, axes = _axes(_LOW)
    axes.stairs(values, range(len(values) + 1), fill=True, color=SERIES[0])
    axes.set_xlabel(quantity)
    axes.set_xlim(0, len(values))
    axes.margins(y=0.12)
    return _svg(figure, label=quantity, name=name)


def _reached(counts: Mapping[int, int], share: float) -> int:
    """Return the first bucket at which the cumulative count reaches `share` of the total."""
    total, reached = sum(counts.values()), 0
    for bucket, number in sorted(counts.items()):
        reached += number
        if reached >= share * total:
            return bucket
    return 0


def _axes(size: tuple[float, float] = _SIZE) -> tuple[Figure, Axes]:
    """Return a figure and its axes in the style of a page: no frame, horizontal grid lines, placeholder colours."""
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.add_subplot()
    axes.set_facecolor("none")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(_QUIET)
    axes.tick_params(colors=_QUIET, labelsize=_FONT, length=3)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.xaxis.label.set_color(_QUIET)
    axes.xaxis.label.set_fontsize(_FONT)
    axes.yaxis.set_major_locator(MaxNLocator(4 if size == _SIZE else 2))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    return figure, axes


def _svg(figure: Figure, *, label: str, name: str = "") -> str:
    """Return the SVG of a figure without XML head and size, which the page sets.

    Its ids are made from `label` and `name`. They are unique in a page, and the same data gives the same bytes.
    """
    file = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": f"{label} {name}", "svg.id": None}):
        figure.savefig(
            file, format="svg", transparent=True, metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
        )
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<style[^>]*>.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', rf'\1 role="img" aria-label="{label}"', svg, count=1)
    # Groups have the same ids in every chart, but ids must be unique in a page: remove them.
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    for stand_in, name in _VARIABLES.items():
        svg = svg.replace(stand_in, f"var(--{name})")
    return svg
