"""Show a run on a terminal while it trains: a few lines that are drawn again and again, above them what is said."""

import collections
import itertools
import os
import resource
import sys
from typing import TextIO

import jax
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from t5prep.io import byte_sizes

_CURVE = 60  # characters of the curve: so many of the last losses, or means of some
_LEVELS = "▁▂▃▄▅▆▇█"
_MOST_LOSSES = 100_000  # that are remembered for the curve


class LivePage:
    """Draw a run's step, loss, rate, what it waits for, its memory and the time that is left."""

    def __init__(self, *, steps: int) -> None:
        """Draw nothing yet, and then on the terminal itself; what others print on stderr is not this class's."""
        self._steps = steps
        self._losses: collections.deque[float] = collections.deque(maxlen=_MOST_LOSSES)
        self._console = Console(file=sys.__stderr__, force_terminal=True, highlight=False)
        self._live: Live | None = None

    def show(
        self, step: int, *, loss: float, learning_rate: float, rate: float, share: float, bound: bool, left: str
    ) -> None:
        """Draw a step: `rate` in tokens a second, `share` of the time waiting for input, and whether that is much (`bound`)."""
        self._losses.append(loss)
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim")
        done = f"{step:,} of {self._steps:,}, {step / max(self._steps, 1):.0%}" + (f", {left} left" if left else "")
        waits = f"the input, {share:.0%} of the time" if bound else f"the devices ({share:.0%} for input)"
        for name, text in (
            ("step", done),
            ("loss", f"{loss:.4f}  {curve(list(self._losses), _CURVE)}"),
            ("rate", f"{rate:,.0f} tokens/s" if rate else "…"),
            ("waits for", waits),
            ("learning rate", f"{learning_rate:.2e}"),
            ("memory", _memory()),
        ):
            grid.add_row(name, Text(text, overflow="ellipsis", no_wrap=True))
        if self._live is None:  # one that was stopped would erase what was printed since
            self._live = Live(
                console=self._console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
            )
            self._live.start()
        self._live.update(grid, refresh=True)

    def close(self) -> None:
        """Take the page away, for something to be printed, or for good; the next step draws it again."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()


def wanted(stream: TextIO) -> bool:
    """Return whether a stream is a terminal that lines can be drawn again on."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def curve(values: list[float], width: int) -> str:
    """Return numbers as a line of bars, from the lowest to the highest of them; of many, means of neighbours.

    >>> curve([4, 3, 2, 1, 1], 5), curve([3, 3], 5), curve([1, 1, 5, 5], 2), curve([], 5)
    ('█▆▃▁▁', '▁▁', '▁█', '')
    """
    count = min(len(values), width)
    edges = [len(values) * at // count for at in range(count + 1)] if count else []
    means = [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    low, span = min(means, default=0), max(means, default=0) - min(means, default=0)
    return "".join(_LEVELS[round((one - low) / span * (len(_LEVELS) - 1)) if span else 0] for one in means)


def _memory() -> str:
    """Return what this process and its first device hold, and of the device, how much there is."""
    unit = 1 if sys.platform == "darwin" else 1024
    said = f"{byte_sizes.text(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)} of this machine at most"
    stats = jax.local_devices()[0].memory_stats() or {}
    if "bytes_in_use" in stats:
        limit = f" of {byte_sizes.text(stats['bytes_limit'])}" if stats.get("bytes_limit") else ""
        said += f", {byte_sizes.text(stats['bytes_in_use'])}{limit} of a device"
    return said
