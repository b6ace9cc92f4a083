"""Draw a sample of lines from one block. Worker processes load this file, so it never imports Beam."""

import dataclasses

from t5prep.reading import blocks, text_columns
from t5prep.reading.blocks import Block
from t5prep.tokens import line_sample
from t5prep.tokens.line_sample import Drawing


@dataclasses.dataclass(frozen=True)
class Drawn:
    """Hold lines drawn by hash, and what they were drawn from: `rows` of the source, of which `broken` could not be read."""

    lines: list[str]
    rows: int
    seen: int
    broken: int


@dataclasses.dataclass(frozen=True)
class DrawBlock:
    """Draw the lines of a block with the smallest hashes."""

    columns: tuple[str, ...]
    most: int
    seed: int

    def __call__(self, block: Block) -> Drawn:
        """Return the sample of a block; rows without such a column are passed over."""
        sample = Drawing(self.most, seed=self.seed)
        rows = seen = broken = 0
        for row in blocks.read(block, columns=self.columns or ("text",)):
            rows += 1
            if row.blank:
                continue
            if row.record is None:
                broken += 1
                continue
            for text in text_columns.texts_of(row.record, columns=self.columns):
                lines = list(line_sample.lines_of(text))
                seen += len(lines)
                sample.add(lines)
        return Drawn(sample.lines(), rows, seen, broken)
