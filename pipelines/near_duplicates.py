"""Wire the search for near-duplicates (pipelines.repeat_steps) with Beam, for engines."""

import dataclasses
from typing import Any

import apache_beam as beam
import numpy as np

from pipelines import earlier_rows
from pipelines import repeat_steps as steps
from pipelines.staging import Job
from pipelines.transforms import Merge
from t5prep.prepare.near_duplicates.components import Joined
from t5prep.prepare.near_duplicates.search import Search


@dataclasses.dataclass
class FindRepeats(beam.PTransform):
    """Find the rows of blocks that repeat another one, from the sketches of blocks."""

    search: Search

    def expand(self, sketches: beam.PCollection) -> beam.PCollection:
        """Return the repeats of each group of rows that are alike."""
        keyed = tuple[int, Any]
        slim = beam.pvalue.AsList(sketches | "Slim" >> beam.Map(steps.slim_sketch))
        once = sketches.pipeline | beam.Create([None])
        plan = beam.pvalue.AsSingleton(once | "Plan" >> beam.Map(steps.make_plan, sketches=slim, search=self.search))
        slices = sketches | "CutBands" >> beam.FlatMap(steps.cut_bands, plan=plan).with_output_types(keyed)
        links = slices | "GroupBands" >> beam.GroupByKey() | "Link" >> beam.Map(steps.link_slices)
        joined = links | "Join" >> beam.CombineGlobally(JoinLinks())
        cut = joined | "Groups" >> beam.FlatMap(steps.make_groups, sketches=slim, search=self.search)
        groups = beam.pvalue.AsList(cut)
        rows = sketches | "CutRows" >> beam.FlatMap(steps.cut_rows, plan=plan, groups=groups).with_output_types(keyed)
        return rows | "GroupRows" >> beam.GroupByKey() | "Find" >> beam.Map(steps.find_in_rows, search=self.search)


@dataclasses.dataclass
class SketchEarlierRows(beam.PTransform):
    """Make the sketches of all records of the earlier datasets that a job compares with."""

    job: Job

    def expand(self, root: beam.Pipeline) -> beam.PCollection:
        """Return the sketches."""
        datasets = root | beam.Create(self.job.settings.dedup_against)
        shards = datasets | "Shards" >> beam.FlatMap(earlier_rows.shards_of) | beam.Reshuffle()
        return shards | "Sketch" >> beam.FlatMap(earlier_rows.sketches_of, job=self.job)


class JoinLinks(Merge):
    """Join arrays of links into one Joined."""

    def __init__(self) -> None:
        super().__init__(Joined)

    def add_input(self, total: Joined, more: np.ndarray) -> Joined:
        """Return the links with more."""
        return total.add(more)
