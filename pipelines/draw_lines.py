"""Drawing a sample of lines from one block: plain work that never imports Beam, because worker processes load it."""

import dataclasses
import json
from pathlib import Path

from t5prep.io import atomic_files
from t5prep.reading import blocks, text_columns
from t5prep.reading.blocks import Block
from t5prep.tokens import line_sample
from t5prep.tokens.line_sample import Drawing


@dataclasses.dataclass(frozen=True)
class Drawn:
    """Lines drawn by hash, and what they were drawn from: `rows` of the source, of which `broken` could not be read."""

    lines: list[str]
    rows: int
    seen: int
    broken: int


@dataclasses.dataclass(frozen=True)
class DrawBlock:
    """Block → its lines with the smallest hashes."""

    columns: tuple[str, ...]
    most: int
    seed: int

    def __call__(self, block: Block) -> Drawn:
        """Rows without such a column are passed over."""
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


def keep(drawn: Drawn, *, path: str) -> str:
    """Writes what was drawn where `kept` reads it: the result of a pipeline is a file. Raises OutputError."""
    atomic_files.write_scratch(Path(path), json.dumps(dataclasses.asdict(drawn)).encode())
    return path


def kept(path: str) -> Drawn:
    """What `keep` wrote."""
    return Drawn(**json.loads(Path(path).read_bytes()))
