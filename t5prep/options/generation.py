"""Define the options of generating answers, and check them before anything is compiled."""

import dataclasses

from t5prep.errors import UsageError
from t5prep.options.fields import Options, changed, option

_SAMPLE = {"sample": (True,)}


@dataclasses.dataclass(frozen=True)
class Generation(Options):
    """Hold the options of generating answers. The search is greedy unless `beams` is above 1 or `sample` is set.

    Lengths count tokens, including EOS. `max_length` 0 means the run's target length. The score of an answer is its
    log-probability divided by its length to the power of `length_penalty`. This is the formula of Wu et al. 2016 without
    its constant, as in `transformers`. The default 0.6 is T5's (Raffel et al. 2020, appendix). `scores` requests scores
    from a greedy search, which does not need them itself. Raises UsageError.
    """

    beams: int = option(1, "beam width for generation; 1 is greedy", minimum=1)
    length_penalty: float = option(0.6, "exponent of the length that divides the log-probability; 0.6 is T5's")
    min_length: int = option(0, "minimum answer length in tokens, including EOS", minimum=0)
    max_length: int = option(0, "maximum answer length in tokens [default: the run's]", minimum=0)
    no_repeat_ngram: int = option(0, "size of n-grams that may not repeat; 0: no limit", minimum=0)
    sample: bool = option(False, "sample each token instead of taking the most likely one")
    temperature: float = option(
        1.0, "with --sample: temperature; below 1, answers vary less", above=0, only_with=_SAMPLE
    )
    top_k: int = option(0, "with --sample: sample from the k most likely tokens; 0: all", minimum=0, only_with=_SAMPLE)
    top_p: float = option(
        1.0,
        "with --sample: sample from the most likely tokens of this total probability",
        above=0,
        maximum=1,
        only_with=_SAMPLE,
    )
    seed: int = option(0, "with --sample: random seed", minimum=0, maximum=2**63 - 1, only_with=_SAMPLE)
    answers: int = option(1, "number of answers for each row", minimum=1)
    scores: bool = option(False, "return the score of each answer")

    def __post_init__(self) -> None:
        super().__post_init__()
        if changed(self, "length_penalty") and not (self.beams > 1 or self.scores or self.answers > 1):
            raise UsageError(
                f"--length-penalty {self.length_penalty:g} needs several answers to compare. Add --beams 4, "
                "or remove --length-penalty.",
                code="option.missing-prerequisite",
            )
        if self.sample and self.beams > 1:
            raise UsageError(
                f"--sample draws each token, but --beams {self.beams} searches for the best answer. Use "
                "either --sample or --beams, not both.",
                code="option.conflict",
            )
        if self.max_length and self.min_length > self.max_length:
            raise UsageError(
                f"--min-length {self.min_length} is above --max-length {self.max_length}. Lower --min-length, "
                "or raise --max-length.",
                code="option.inverted-range",
            )
        if self.answers > 1 and not self.sample and self.answers > self.beams:
            raise UsageError(
                f"--answers {self.answers} needs at least as many beams. Add --beams {self.answers}, or --sample.",
                code="option.missing-prerequisite",
            )
