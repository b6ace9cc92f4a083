"""Wire the search for near-duplicates (pipelines.repeat_steps) with Beam, for engines."""

import dataclasses
from typing import Any

import apache_beam as beam

from pipelines import repeat_steps as steps
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
        side = {"links": beam.pvalue.AsList(links), "sketches": slim, "search": self.search}
        groups = beam.pvalue.AsList(once | "Groups" >> beam.FlatMap(steps.make_groups, **side))
        rows = sketches | "CutRows" >> beam.FlatMap(steps.cut_rows, plan=plan, groups=groups).with_output_types(keyed)
        return rows | "GroupRows" >> beam.GroupByKey() | "Find" >> beam.Map(steps.find_in_rows, search=self.search)
