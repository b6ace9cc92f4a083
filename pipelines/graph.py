"""Add the stages of a preparation to a Beam pipeline, for engines: Prism, Flink, Dataflow. Their workers share no disk.

What every block and every shard counts is added up by combiners, so that no step is handed a list that grows with the number of
blocks. Rows lie in files beside the shards, and the runner's shuffle brings together where those of each shard are.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics

from pipelines import flow, pieces
from pipelines.kept import FOUND, MADE, JobResults
from pipelines.pieces import Stored
from t5prep.errors import OutputError


class Graph:
    """The executor of engines: each stage adds steps to a pipeline. What workers made is `kept` for the same job again."""

    def __init__(self, pipeline: beam.Pipeline, results: JobResults) -> None:
        self._pipeline, self._kept = pipeline, results

    def run(self, stages: Sequence[flow.Stage[Any]]) -> beam.PCollection:
        """Return the value of the last stage: one element. Each stands behind those that it reads."""
        collections = dict[flow.Stage[Any], Any]()
        for stage in stages:
            sides = {
                name: collections[value]
                if isinstance(value, flow.ToTable)
                else beam.pvalue.AsSingleton(collections[value])
                for name, value in stage.values.items()
            }
            match [collections[source] for source in stage.elements]:
                case []:
                    elements = self._pipeline | f"{stage.name}Once" >> beam.Create([None])
                case [elements]:
                    pass
                case several:
                    elements = several | f"{stage.name}All" >> beam.Flatten()
            collections[stage] = self._added(stage, elements, sides)
        return collections[stages[-1]]

    def _added(self, stage: flow.Stage[Any], elements: beam.PCollection, sides: dict[str, Any]) -> Any:
        """Return what a stage makes of elements, or of one that says nothing, and of values."""
        name = stage.name
        match stage:
            case flow.Create():
                return elements | name >> beam.FlatMap(called_once, step=stage.step, **sides)
            case flow.Call():
                return elements | name >> beam.Map(called_once, step=stage.step, **sides)
            case flow.Map():
                once = Once(self._kept, name, stage.step, stage.cache_name, stage.cache_file, stage.stored)
                step = once if stage.cache_name or stage.stored else stage.step
                return elements | name >> beam.FlatMap(called, step=step, **sides)
            case flow.Filter():
                return elements | name >> beam.Filter(is_of, type=stage.type)
            case flow.Reshuffle(key=None):
                return elements | name >> beam.Reshuffle()
            case flow.Reshuffle():
                # They are spread by a key, because Flink leaves out the second of two `Reshuffle`s that only ParDos are between: all
                # blocks of a file would stay on the worker that found them.
                pairs = elements | f"{name}Key" >> beam.Map(with_key, key=stage.key).with_output_types(tuple[str, Any])
                return pairs | name >> beam.GroupByKey() | f"{name}Values" >> beam.FlatMap(group_values)
            case flow.GroupByKey() | flow.ToTable():
                pairs = elements | f"{name}Key" >> beam.Map(tuple).with_output_types(tuple[stage.key, Any])  # type: ignore[name-defined]
                return (
                    beam.pvalue.AsMultiMap(pairs)
                    if isinstance(stage, flow.ToTable)
                    else pairs | name >> beam.GroupByKey()
                )
            case flow.Combine():
                return elements | name >> beam.CombineGlobally(Sum(stage.zero, stage.add))
            case flow.ToList():
                return elements | name >> beam.CombineGlobally(beam.combiners.ToListCombineFn())
        raise TypeError(f"{type(stage).__name__} is for executors that take elements in order")


def called(element: Any, *, step: Callable[..., Any], **sides: Any) -> Any:
    """Return what a step makes of an element. Beam hands values to functions only, not to what `functools.partial` returns."""
    return step(element, **sides)


def called_once(_: None, *, step: Callable[..., Any], **sides: Any) -> Any:
    """Return what a step makes of values alone, called for the one element of a collection that says nothing."""
    return step(**sides)


def is_of(element: Any, *, type: type) -> bool:
    """Check whether an element is of a type, or is a stored one of it."""
    return isinstance(element.about if isinstance(element, Stored) else element, type)


@dataclasses.dataclass(frozen=True)
class Once:
    """Do the step of a stage for an element, unless an earlier run of the job has done it, and store the bytes of its results."""

    kept: JobResults
    stage: str
    step: Callable[..., Iterable[Any]]
    cache_name: Callable[[Any], str] | None
    cache_file: Callable[[Any], str] | None
    stored: tuple[type, ...]

    def __call__(self, element: Any, **sides: Any) -> list[Any]:
        """Return the results of the step. Raises OutputError."""
        if self.cache_name is None:
            file = self.kept.rows_of(f"{self.stage}-{element[0]}")  # of a group, known by its key
            return pieces.store(self.step(element, **sides), file, types=self.stored)
        if not (name := self.cache_name(element)):
            return list(self.step(element, **sides))
        file = self.kept.rows_of(name) if self.stored else self.cache_file(element) if self.cache_file else ""
        cached_results = self.kept.find(name, file=file)
        Metrics.counter("t5prep", MADE if cached_results is None else FOUND).inc()
        if cached_results is not None:
            return cached_results
        results: Iterable[Any] = self.step(element, **sides)
        results_to_cache = pieces.store(results, file, types=self.stored) if self.stored else list(results)
        with contextlib.suppress(OutputError):  # where there is no room, the run goes on without
            self.kept.keep(name, results_to_cache, file=file)
        return results_to_cache


class Sum(beam.CombineFn):
    """Add up elements; of none, return `zero()`."""

    def __init__(self, zero: Callable[[], Any], add: Callable[[Any, Any], Any]) -> None:
        self._zero, self._add = zero, add

    def create_accumulator(self) -> Any:
        """Return nothing added up."""
        return self._zero()

    def add_input(self, total: Any, element: Any) -> Any:
        """Return both together."""
        return self._add(total, element)

    def merge_accumulators(self, parts: Iterable[Any]) -> Any:
        """Return all of them together."""
        total = self._zero()
        for part in parts:
            total = self._add(total, part)
        return total

    def extract_output(self, total: Any) -> Any:
        """Return the total."""
        return total


def with_key(element: Any, *, key: Callable[[Any], str]) -> tuple[str, Any]:
    """Return an element with its key."""
    return key(element), element


def group_values(group: tuple[str, Iterable[Any]]) -> Iterable[Any]:
    """Return the values of a group."""
    return group[1]
