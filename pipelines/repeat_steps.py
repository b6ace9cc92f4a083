"""Do the steps of the search for near-duplicates, as functions of plain values. Nothing here imports Beam."""

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pipelines import pool
from t5prep.prepare.near_duplicates import candidates
from t5prep.prepare.near_duplicates.candidates import BandRun
from t5prep.prepare.near_duplicates.components import Joined
from t5prep.prepare.near_duplicates.repeats import Repeats
from t5prep.prepare.near_duplicates.search import Group, Plan, Search
from t5prep.prepare.near_duplicates.sketch import Sketch
from t5prep.prepare.shard_writer import ShardSpec

# The sketches that a group's rows are in, each with their places.
Members = list[tuple[Sketch, np.ndarray]]


class Bundle(NamedTuple):
    """Hold some of all sketches, with their numbers, and the number of this bundle."""

    number: int
    sketches: list[tuple[int, Sketch]]


class Slices(NamedTuple):
    """Hold a range of band values, and the files with all bands."""

    bounds: tuple[int, int]
    runs: list[BandRun]


@dataclasses.dataclass(frozen=True)
class MergeBands:
    """Merge the bands of some sketches into one file under `spool`."""

    spool: str

    def __call__(self, bundle: Bundle) -> BandRun:
        """Return the file."""
        return candidates.merge(bundle.sketches, Path(self.spool) / "bands" / f"{bundle.number:06d}")


@dataclasses.dataclass(frozen=True)
class FindInSketches:
    """Find the repeats among rows, given sketches with the places of rows in them."""

    search: Search

    def __call__(self, members: Members) -> Repeats:
        """Read the rows and compare them."""
        return self.search.find([(sketch.file, sketch.take(places)) for sketch, places in members])


def find_here(sketches: Sequence[Sketch], search: Search, *, spool: str, pool_name: str = "") -> list[Repeats]:
    """Return the repeats of each group of rows that are alike; sketches are read where they lie on this machine's disk.

    Bands are merged into a few files under `spool`, so that no step opens every sketch.
    """
    plan = search.plan(sketches)
    ordered = sorted(sketches, key=plan.number)
    runs = list(pool.each(pool_name, MergeBands(spool), _bundles(ordered)))
    ranges = (Slices(bounds, runs) for bounds in plan.ranges)
    joined = functools.reduce(Joined.add, pool.each(pool_name, link_runs, ranges), Joined())
    groups = search.groups(joined, sketches)
    members = ([(ordered[number], places) for number, places in group.places.items()] for group in groups)
    return list(pool.each(pool_name, FindInSketches(search), members))


def _bundles(ordered: Sequence[Sketch]) -> Iterator[Bundle]:
    """Yield all sketches with their numbers, as many at a time as are merged."""
    numbered = enumerate(ordered)
    for number, group in enumerate(candidates.groups_of_sketches(ordered)):
        yield Bundle(number, list(itertools.islice(numbered, len(group))))


def link_runs(element: Slices) -> np.ndarray:
    """Return the links between rows in one range of band values."""
    begin, end = element.bounds
    return candidates.links_of_runs(element.runs, begin=begin, end=end)


def slim_sketch(sketch: Sketch) -> Sketch:
    """Return a sketch without its bytes."""
    return dataclasses.replace(sketch, data=b"")


def make_plan(_: None, *, sketches: Sequence[Sketch], search: Search) -> Plan:
    """Return the plan of the search."""
    return search.plan(sketches)


def cut_bands(sketch: Sketch, *, plan: Plan) -> Iterator[tuple[int, tuple[int, np.ndarray]]]:
    """Yield the sketch's part of each range of band values, under the number of the range."""
    for number, bounds in enumerate(plan.ranges):
        yield number, (plan.number(sketch), sketch.slice(*bounds))


def link_slices(group: tuple[int, Iterable[tuple[int, np.ndarray]]]) -> np.ndarray:
    """Return the links between rows in one range of band values."""
    return candidates.links(group[1])


def make_groups(joined: Joined, *, sketches: Iterable[Sketch], search: Search) -> Iterator[Group]:
    """Yield the groups of rows that are to be compared."""
    yield from search.groups(joined, sketches)


def cut_rows(sketch: Sketch, *, plan: Plan, groups: Iterable[Group]) -> Iterator[tuple[int, tuple[str, Any]]]:
    """Yield the sketch's rows that are to be compared, under the number of their group."""
    number = plan.number(sketch)
    for group in groups:
        if number in group.places:
            yield group.number, (sketch.file, sketch.take(group.places[number]))


def find_in_rows(group: tuple[int, Iterable[tuple[str, Any]]], *, search: Search) -> Repeats:
    """Return the repeats among the rows of a group."""
    return search.find(list(group[1]))


def of_shard(spec: ShardSpec, parts: Iterable[Repeats]) -> list[Repeats]:
    """Return the rows that a shard leaves out because they repeat another one."""
    own = (part.slice(spec.split, *spec.bounds) for part in parts)
    return [part for part in own if len(part.dropped)]
