"""Turn splits that are given as numbers of rows into the shares that draw exactly so many."""

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np

from t5prep.dataset import split_shares
from t5prep.dataset.settings import Settings
from t5prep.errors import Reject, UsageError
from t5prep.prepare import placement, row_limit, split_draw
from t5prep.prepare.block_tokenizer import text_digest
from t5prep.prepare.filters.chain import Chain
from t5prep.reading import blocks, parallel_files, split_files, values
from t5prep.reading.blocks import Block
from t5prep.sources import Resolved
from t5prep.tasks.chosen_task import ChosenTask


def resolved(settings: Settings, task: ChosenTask, *, source: Resolved) -> Settings:
    """Return the settings with shares where they have numbers of rows; unchanged where they have none.

    All rows are read once, and made into examples but not tokenized, because a share that draws exactly so many rows
    depends on the ids of all of them. Near-duplicates, leaks and what a filter of tokens rejects are counted too.
    Raises UsageError where there are too few rows.
    """
    held_out = settings.held_out is not None and settings.held_out > 1
    asked = {"validation": settings.held_out} if held_out else settings.splits or {}
    if not split_shares.counts(asked):  # type: ignore[arg-type]
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
    counts = split_shares.counts(splits)
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
    for file in row_limit.limited_files(source.files, settings, task):
        if own_splits.get(parallel_files.files(file.element)[0].name, "train") != "train":
            continue
        for block in row_limit.scan(file, settings, task.task.corpus):
            keys = list(_keys(block, settings, task))
            digests = placement.digests([key for key, _ in keys], seed=settings.seed)
            drawn = placement.uniform(split_draw.by_group([group for _, group in keys], digests, seed=settings.seed))
            draws.update(zip((digest.tobytes() for digest in digests), drawn.tolist(), strict=True))
    return np.array(list(draws.values()), np.float64)


def _keys(block: Block, settings: Settings, task: ChosenTask) -> Iterator[tuple[str, str | None]]:
    """Yield what decides the place of each example of a block (its id, or its text), and its group."""
    names = (*task.columns.names, *([settings.group_column] if settings.group_column else []))
    filters = Chain(settings.filter)
    for row in blocks.read(block, columns=names):
        if row.record is None:
            continue
        try:
            example = task.to_example(row.record)
            group = values.text(row.record, settings.group_column, "") if settings.group_column else None
        except (Reject, KeyError):
            continue
        if filters(example).reason or example.split:
            continue
        id = f"{block.file.name}:{row.number}" if example.id is None else example.id
        yield (text_digest(example) if settings.dedup == "exact" else id), group or None
