"""Wire the drawing of lines with Beam: take blocks, and return one sample."""

import dataclasses
from collections.abc import Iterable

import apache_beam as beam

from pipelines.draw_lines import DrawBlock, Drawn
from pipelines.transforms import InPool
from t5prep.tokens.line_sample import Drawing


@dataclasses.dataclass
class DrawLines(beam.PTransform):
    """Draw one sample from all blocks. No step ever holds more than `most` lines and what is on its way."""

    work: DrawBlock
    pool: str = ""

    def expand(self, found: beam.PCollection) -> beam.PCollection:
        """Return a collection of one Drawn."""
        step = beam.ParDo(InPool(self.pool, self.work)) if self.pool else beam.Map(self.work)
        return found | "Draw" >> step | "Merge" >> beam.CombineGlobally(Merge(self.work.most, self.work.seed))


class Merge(beam.CombineFn):
    """Merge samples: the smallest hashes of several samples are the smallest of all."""

    def __init__(self, most: int, seed: int) -> None:
        self._most, self._seed = most, seed

    def create_accumulator(self) -> tuple[Drawing, list[int]]:
        """Return an empty sample, and the counts of rows, lines seen and rows broken."""
        return Drawing(self._most, seed=self._seed), [0, 0, 0]

    def add_input(self, merged: tuple[Drawing, list[int]], drawn: Drawn) -> tuple[Drawing, list[int]]:
        """Add one more block's lines."""
        sample, counts = merged
        sample.add(drawn.lines)
        return sample, [a + b for a, b in zip(counts, (drawn.rows, drawn.seen, drawn.broken), strict=True)]

    def merge_accumulators(self, parts: Iterable[tuple[Drawing, list[int]]]) -> tuple[Drawing, list[int]]:
        """Merge several samples into one."""
        merged = self.create_accumulator()
        for sample, counts in parts:
            merged = self.add_input(merged, Drawn(sample.lines(), *counts))
        return merged

    def extract_output(self, merged: tuple[Drawing, list[int]]) -> Drawn:
        """Return what was drawn of everything."""
        sample, counts = merged
        return Drawn(sample.lines(), *counts)
