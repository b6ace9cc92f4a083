"""Turn splits that are given as numbers of rows into the shares that draw exactly so many."""

import dataclasses
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from t5prep.dataset.settings import Settings, row_counts
from t5prep.errors import UsageError
from t5prep.prepare import earlier_texts, placement, row_limit
from t5prep.prepare.block_examples import BlockExamples
from t5prep.prepare.filters.chain import Chain
from t5prep.reading import parallel_files, split_files
from t5prep.reading.blocks import Block
from t5prep.sources import Resolved
from t5prep.tasks import example_table
from t5prep.tasks.task import ChosenTask


def resolved(settings: Settings, task: ChosenTask, *, source: Resolved) -> Settings:
    """Return the settings with shares where they have numbers of rows; unchanged where they have none.

    All rows are read once, and made into examples but not tokenized, because a share that draws exactly so many rows
    depends on the ids of all of them. Near-duplicates, leaks and what a filter of tokens rejects are counted too.
    Raises UsageError where there are too few rows.
    """
    held_out = settings.held_out is not None and settings.held_out > 1
    asked = {"validation": settings.held_out} if held_out else settings.splits or {}
    if not row_counts(asked):  # type: ignore[arg-type]
        return settings
    own = split_files.of_files([file.name for file in source.files]) if held_out else {}
    if held_out and "validation" in own.values():
        return dataclasses.replace(settings, held_out=None)
    draws = _draws(settings, task, source=source, own_splits=own)
    if held_out:
        shares = exact_shares({**asked, "train": 1.0}, draws)  # type: ignore[dict-item]
        return dataclasses.replace(settings, held_out=shares["validation"])
    return dataclasses.replace(settings, splits=exact_shares(asked, draws))  # type: ignore[arg-type]


def exact_shares(splits: Mapping[str, float], draws: np.ndarray) -> dict[str, float]:
    """Return shares that add up to 1 and by which these numbers (float64[rows], in 0..1) are drawn as asked.

    A split that is a number of rows gets exactly so many of different draws; equal draws, those of one group, stay
    together, and then it gets at least so many. The shares that were asked for divide the rest. Without any row the shares
    are equal: preparing then rejects each row with its reason. Raises UsageError.

    >>> exact_shares({"validation": 2, "train": 1.0}, np.array([0.9, 0.5, 0.1, 0.3]))
    {'validation': 0.4, 'train': 0.6}
    """
    if not len(draws):
        return {name: 1 / len(splits) for name in splits}
    different, numbers = np.unique(draws, return_counts=True)
    reached, edge, edges, total = np.cumsum(numbers), 0, [0.0], 0
    counts = row_counts(splits)
    for name, count in counts.items():
        total += count
        edge = int(np.searchsorted(reached, total)) + 1
        if edge >= len(different):
            raise UsageError(
                f"--splits {name}={count}: there are {len(draws):,} rows that make an example, and others need some too. "
                "Ask for fewer"
            )
        edges.append(float((different[edge - 1] + different[edge]) / 2))
        total = int(reached[edge - 1])
    rest = 1 - edges[-1]
    exact = {name: edges[place + 1] - edges[place] for place, name in enumerate(counts)}
    return exact | {name: share * rest for name, share in splits.items() if name not in counts}


def _draws(settings: Settings, task: ChosenTask, *, source: Resolved, own_splits: Mapping[str, str]) -> np.ndarray:
    """Return the number in 0..1 by which each different row is drawn: float64[rows]."""
    draws: dict[bytes, float] = {}
    examples_of, filters = BlockExamples(settings, task), Chain(settings.filter)
    for file in row_limit.limited_files(source.files, settings, task):
        if own_splits.get(parallel_files.files(file.element)[0].name, "train") != "train":
            continue
        for block in row_limit.scan(file, settings, task.task.corpus):
            keys, groups = _keys(examples_of(block), filters, block=block, by_text=settings.dedup == "exact")
            digests = placement.digests(keys, seed=settings.seed)
            drawn = placement.uniform(placement.by_group(groups, digests, seed=settings.seed))
            draws.update(zip((digest.tobytes() for digest in digests), drawn.tolist(), strict=True))
    return np.array(list(draws.values()), np.float64)


def _keys(examples: pa.Table, filters: Chain, *, block: Block, by_text: bool) -> tuple[list[str], list[str | None]]:
    """Return what decides the place of each example of a block (its id, or its text), and the groups of all."""
    examples, reasons, _ = filters.of_table(examples)
    left = np.ones(len(examples), bool)
    left[list(reasons)] = False
    examples = examples.filter(pc.and_(pa.array(left), examples["split"].is_null())).combine_chunks()
    groups = examples["group"].to_pylist()
    if by_text:
        return list(map(earlier_texts.digest, example_table.inputs_of(examples).lines().to_pylist())), groups
    places = (examples["row"].to_numpy() + block.first_row).tolist()
    named = zip(examples["id"].to_pylist(), places, strict=True)
    return [f"{block.file.name}:{place}" if id is None else id for id, place in named], groups
