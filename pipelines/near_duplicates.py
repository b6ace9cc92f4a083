"""Wire the steps of t5prep.prepare.near_duplicates with Beam, for one machine and for many."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np

from pipelines.transforms import in_pool
from t5prep.prepare.near_duplicates import candidates
from t5prep.prepare.near_duplicates.repeats import Repeats
from t5prep.prepare.near_duplicates.search import Group, Plan, Search
from t5prep.prepare.near_duplicates.sketch import Sketch

# The sketches that a group's rows are in, each with their places.
Members = list[tuple[Sketch, np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Slices:
    """Hold a range of band values, and all sketches with their numbers."""

    bounds: tuple[int, int]
    sketches: list[tuple[int, Sketch]]


@dataclasses.dataclass
class FindRepeats(beam.PTransform):
    """Find the rows of blocks that repeat another one, from the sketches of blocks.

    Where workers share a disk (not `spread`), sketches are read where they lie.
    """

    search: Search
    pool: str = ""
    spread: bool = False

    def expand(self, sketches: beam.PCollection) -> beam.PCollection:
        """Return the repeats of each group of rows that are alike."""
        slim = beam.pvalue.AsList(sketches | "Slim" >> beam.Map(slim_sketch))
        once = sketches.pipeline | beam.Create([None])
        plan = beam.pvalue.AsSingleton(once | "Plan" >> beam.Map(make_plan, sketches=slim, search=self.search))
        if self.spread:
            keyed = tuple[int, Any]
            slices = sketches | "CutBands" >> beam.FlatMap(cut_bands, plan=plan).with_output_types(keyed)
            links = slices | "GroupBands" >> beam.GroupByKey() | "Link" >> beam.Map(link_slices)
        else:
            ranges = once | "Ranges" >> beam.FlatMap(with_sketches, plan=plan, sketches=slim)
            links = ranges | "Link" >> in_pool(link_sketches, self.pool)
        side = {"links": beam.pvalue.AsList(links), "sketches": slim, "search": self.search}
        groups = once | "Groups" >> beam.FlatMap(make_groups, **side)
        if not self.spread:
            members = groups | "WithSketches" >> beam.Map(with_members, plan=plan, sketches=slim)
            return members | "Find" >> in_pool(FindInSketches(self.search), self.pool)
        all_groups = beam.pvalue.AsList(groups)
        rows = sketches | "CutRows" >> beam.FlatMap(cut_rows, plan=plan, groups=all_groups).with_output_types(keyed)
        return rows | "GroupRows" >> beam.GroupByKey() | "Find" >> beam.Map(find_in_rows, search=self.search)


@dataclasses.dataclass(frozen=True)
class FindInSketches:
    """Find the repeats among rows, given sketches with the places of rows in them."""

    search: Search

    def __call__(self, members: Members) -> Repeats:
        """Read the rows and compare them."""
        return self.search.find([(sketch.file, sketch.take(places)) for sketch, places in members])


def slim_sketch(sketch: Sketch) -> Sketch:
    """Return a sketch without its bytes."""
    return dataclasses.replace(sketch, data=b"")


def make_plan(_: None, *, sketches: Sequence[Sketch], search: Search) -> Plan:
    """Return the plan of the search."""
    return search.plan(sketches)


def with_sketches(_: None, *, plan: Plan, sketches: Sequence[Sketch]) -> Iterator[Slices]:
    """Yield each range of band values with all sketches and their numbers."""
    numbered = [(plan.number(sketch), sketch) for sketch in sketches]
    for bounds in plan.ranges:
        yield Slices(bounds, numbered)


def link_sketches(element: Slices) -> np.ndarray:
    """Return the links between rows in one range of band values."""
    return candidates.links((number, sketch.slice(*element.bounds)) for number, sketch in element.sketches)


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


def with_members(group: Group, *, plan: Plan, sketches: Iterable[Sketch]) -> Members:
    """Return the sketches that a group's rows are in, each with their places."""
    own = ((sketch, group.places.get(plan.number(sketch))) for sketch in sketches)
    return [(sketch, places) for sketch, places in own if places is not None]


def cut_rows(sketch: Sketch, *, plan: Plan, groups: Iterable[Group]) -> Iterator[tuple[int, tuple[str, Any]]]:
    """Yield the sketch's rows that are to be compared, under the number of their group."""
    number = plan.number(sketch)
    for group in groups:
        if number in group.places:
            yield group.number, (sketch.file, sketch.take(group.places[number]))


def find_in_rows(group: tuple[int, Iterable[tuple[str, Any]]], *, search: Search) -> Repeats:
    """Return the repeats among the rows of a group."""
    return search.find(list(group[1]))
