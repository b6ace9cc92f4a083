"""Do the steps of the search for near-duplicates, as functions of plain values. Nothing here imports Beam."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from pipelines import pool
from t5prep.prepare.near_duplicates import candidates
from t5prep.prepare.near_duplicates.repeats import Repeats
from t5prep.prepare.near_duplicates.search import Group, Plan, Search
from t5prep.prepare.near_duplicates.sketch import Sketch
from t5prep.prepare.shard_writer import ShardSpec

# The sketches that a group's rows are in, each with their places.
Members = list[tuple[Sketch, np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Slices:
    """Hold a range of band values, and all sketches with their numbers."""

    bounds: tuple[int, int]
    sketches: list[tuple[int, Sketch]]


@dataclasses.dataclass(frozen=True)
class FindInSketches:
    """Find the repeats among rows, given sketches with the places of rows in them."""

    search: Search

    def __call__(self, members: Members) -> Repeats:
        """Read the rows and compare them."""
        return self.search.find([(sketch.file, sketch.take(places)) for sketch, places in members])


def find_here(sketches: Sequence[Sketch], search: Search, *, pool_name: str = "") -> list[Repeats]:
    """Return the repeats of each group of rows that are alike; sketches are read where they lie on this machine's disk."""
    plan = search.plan(sketches)
    numbered = [(plan.number(sketch), sketch) for sketch in sketches]
    ranges = (Slices(bounds, numbered) for bounds in plan.ranges)
    links = list(_each(link_sketches, ranges, pool_name))
    members = (_members(group, numbered) for group in search.groups(links, sketches))
    return list(_each(FindInSketches(search), members, pool_name))


def _each(work: Callable[[Any], Any], elements: Iterable[Any], pool_name: str) -> Iterator[Any]:
    window = pool.window(pool_name, work)
    for element in elements:
        yield from window.put(element)
    yield from window.drain()


def link_sketches(element: Slices) -> np.ndarray:
    """Return the links between rows in one range of band values."""
    return candidates.links((number, sketch.slice(*element.bounds)) for number, sketch in element.sketches)


def _members(group: Group, numbered: Iterable[tuple[int, Sketch]]) -> Members:
    """Return the sketches that a group's rows are in, each with their places."""
    return [(sketch, group.places[number]) for number, sketch in numbered if number in group.places]


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


def make_groups(_: None, *, links: Iterable[np.ndarray], sketches: Iterable[Sketch], search: Search) -> Iterator[Group]:
    """Yield the groups of rows that are to be compared."""
    yield from search.groups(links, sketches)


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
