"""Note what the steps of preparing do to one row, for `t5prep why`."""

import dataclasses

from t5prep.tasks.example import Example


@dataclasses.dataclass
class Trace:
    """Each filter with the example before and after it and why it rejected it, and the runs of ids cut out of either side."""

    filters: list[tuple[str, Example, Example, str]] = dataclasses.field(default_factory=list)
    inputs: list[list[int]] = dataclasses.field(default_factory=list)
    targets: list[list[int]] = dataclasses.field(default_factory=list)
