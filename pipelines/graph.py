"""Add the stages of a preparation to a Beam pipeline, for the engines Prism, Flink and Dataflow, whose workers share no disk.

Combiners add up the counts of blocks and shards, so no step receives a list that grows with the number of blocks.
Rows are stored in files beside the shards. The runner's shuffle groups only the locations of these rows.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.pvalue import AsMultiMap, AsSideInput, AsSingleton

from pipelines import flow, pieces
from pipelines.job_results import CACHE_HITS, CACHE_MISSES, JobResults
from pipelines.pieces import Stored
from t5prep.errors import OutputError


class Graph:
    """The executor for engines: each stage adds transforms to `pipeline`. `results` caches workers' results for a resumed job."""

    def __init__(self, pipeline: beam.Pipeline, results: JobResults) -> None:
        self._pipeline, self._results = pipeline, results

    def run(self, stages: Sequence[flow.Stage[object]]) -> beam.PCollection:
        """Add all stages in order and return the PCollection of the last one, which has one element.

        Each stage must follow the stages that it reads (`flow.in_order`).
        """
        collections = dict[flow.Stage[object], beam.PCollection]()
        for stage in stages:
            sides = {
                name: collections[value] if isinstance(value, flow.ToTable) else AsSingleton(collections[value])
                for name, value in stage.values.items()
            }
            match [collections[source] for source in stage.elements]:
                case []:
                    # Beam calls a step only for an element: one None starts the step of a stage without inputs.
                    elements = self._pipeline | f"{stage.name}CachedStep" >> beam.Create([None])
                case [elements]:
                    pass
                case several:
                    elements = several | f"{stage.name}All" >> beam.Flatten()
            collections[stage] = self._added(stage, elements, sides)
        return collections[stages[-1]]

    def _added(
        self, stage: flow.Stage[object], elements: beam.PCollection, sides: Mapping[str, AsSideInput]
    ) -> beam.PCollection | AsSideInput:
        """Return the PCollection, or side input, of one stage applied to `elements`. `sides` are the side inputs of its step."""
        name = stage.name
        match stage:
            case flow.Create():
                return elements | name >> beam.FlatMap(called_once, step=stage.step, **sides)
            case flow.Call():
                return elements | name >> beam.Map(called_once, step=stage.step, **sides)
            case flow.Map():
                once = CachedStep(self._results, name, stage.step, stage.cache_name, stage.cache_file, stage.stored)
                step = once if stage.cache_name or stage.stored else stage.step
                return elements | name >> beam.FlatMap(called, step=step, **sides)
            case flow.Filter():
                return elements | name >> beam.Filter(is_of, type=stage.type)
            case flow.Reshuffle(key=None):
                return elements | name >> beam.Reshuffle()
            case flow.Reshuffle():
                # Spread by a key, because Flink drops the second of two `Reshuffle`s with only ParDos between them.
                # All blocks of a file would then stay on the worker that found them.
                pairs = elements | f"{name}Key" >> beam.Map(with_key, key=stage.key).with_output_types(tuple[str, Any])
                return pairs | name >> beam.GroupByKey() | f"{name}Values" >> beam.FlatMap(group_values)
            case flow.GroupByKey() | flow.ToTable():
                pairs = elements | f"{name}Key" >> beam.Map(tuple).with_output_types(tuple[stage.key, Any])  # type: ignore[name-defined]
                return AsMultiMap(pairs) if isinstance(stage, flow.ToTable) else pairs | name >> beam.GroupByKey()
            case flow.Combine():
                return elements | name >> beam.CombineGlobally(Sum(stage.zero, stage.add))
            case flow.ToList():
                return elements | name >> beam.CombineGlobally(beam.combiners.ToListCombineFn())
        raise TypeError(f"{type(stage).__name__} is for executors that take elements in order")


def called(element: Any, *, step: Callable[..., Any], **sides: Any) -> Any:
    """Return `step(element, **sides)`. Beam passes side inputs to plain functions, but not to objects of `functools.partial`."""
    return step(element, **sides)


def called_once(_: None, *, step: Callable[..., Any], **sides: Any) -> Any:
    """Return `step(**sides)`. The argument is the None of a collection that exists only to call the step once."""
    return step(**sides)


def is_of(element: Any, *, type: type) -> bool:
    """Check whether an element has a type, or is the `Stored` form of that type."""
    return isinstance(element.about if isinstance(element, Stored) else element, type)


@dataclasses.dataclass(frozen=True)
class CachedStep:
    """Call the step of a stage for an element, or return the results that an earlier run of the job cached.

    * `job_results`: the cached results of the job.
    * `stage`: the name of the stage.
    * `cache_name`, `cache_file`, `stored`: as in `flow.Map`.
    """

    job_results: JobResults
    stage: str
    step: Callable[..., Iterable[object]]
    cache_name: Callable[[object], str] | None
    cache_file: Callable[[object], str] | None
    stored: tuple[type, ...]

    def __call__(self, element: object, **sides: object) -> list[object]:
        """Return the results of the step; the bytes of `stored` types are in a file. Raises OutputError."""
        if self.cache_name is None:
            assert isinstance(element, tuple)
            file = self.job_results.rows_of(f"{self.stage}-{element[0]}")  # a group, named by its key
            return pieces.store(self.step(element, **sides), file, types=self.stored)
        if not (name := self.cache_name(element)):
            return list(self.step(element, **sides))
        file = self.job_results.rows_of(name) if self.stored else self.cache_file(element) if self.cache_file else ""
        cached_results = self.job_results.find(name, file=file)
        Metrics.counter("t5prep", CACHE_MISSES if cached_results is None else CACHE_HITS).inc()
        if cached_results is not None:
            return cached_results
        results = self.step(element, **sides)
        results_to_cache = pieces.store(results, file, types=self.stored) if self.stored else list(results)
        with contextlib.suppress(OutputError):  # a full disk prevents only the caching
            self.job_results.keep(name, results_to_cache, file=file)
        return results_to_cache


class Sum(beam.CombineFn):
    """The CombineFn that adds elements with `add`, starting with `zero()`."""

    def __init__(self, zero: Callable[[], object], add: Callable[[object, object], object]) -> None:
        self._zero, self._add = zero, add

    def create_accumulator(self) -> object:
        """Return the initial sum."""
        return self._zero()

    def add_input(self, total: object, element: object) -> object:
        """Return `total` plus one element."""
        return self._add(total, element)

    def merge_accumulators(self, parts: Iterable[object]) -> object:
        """Return the sum of partial sums."""
        total = self._zero()
        for part in parts:
            total = self._add(total, part)
        return total

    def extract_output(self, total: object) -> object:
        """Return the total."""
        return total


def with_key(element: Any, *, key: Callable[[Any], str]) -> tuple[str, Any]:
    """Return the pair (key of the element, element)."""
    return key(element), element


def group_values(group: tuple[str, Iterable[Any]]) -> Iterable[Any]:
    """Return the values of a (key, values) pair."""
    return group[1]
