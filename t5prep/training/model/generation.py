"""Define the options of generating answers, and check them before anything is compiled."""

import dataclasses
import math

from t5prep.errors import UsageError
from t5prep.tasks.options import spelled

_AT_LEAST = {
    "beams": 1,
    "answers": 1,
    **dict.fromkeys(("max_length", "min_length", "no_repeat_ngram", "top_k", "seed"), 0),
}


@dataclasses.dataclass(frozen=True)
class Generation:
    """The options of a search, which is greedy unless there are several `beams` or `sample` is set.

    Lengths count tokens with EOS; `max_length` 0 means the run's target length. The score of an answer is its
    log-probability divided by its length to the power of `length_penalty`: Wu et al. 2016 without its constant, as in
    `transformers`; 0.6 is T5's (Raffel et al. 2020, appendix). `no_repeat_ngram` is the size of the n-grams that may
    not occur twice (0: any may). `top_k` 0 and `top_p` 1 draw from the whole vocabulary. `answers` is the number of
    answers; `scores` requests scores if the search itself does not need them. Raises UsageError.
    """

    max_length: int = 0
    min_length: int = 0
    beams: int = 1
    length_penalty: float = 0.6
    no_repeat_ngram: int = 0
    sample: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    answers: int = 1
    scores: bool = False

    def __post_init__(self) -> None:
        for name, least in _AT_LEAST.items():
            if getattr(self, name) < least:
                raise UsageError(f"--{name.replace('_', '-')} {getattr(self, name)}: it must be at least {least}.")
        plain = Generation.__dataclass_fields__
        for name in ("temperature", "top_k", "top_p", "seed"):
            if not self.sample and getattr(self, name) != plain[name].default:
                option = f"--{name.replace('_', '-')}"
                raise UsageError(f"{option} is for answers that are drawn: add --sample, or leave {option} out.")
        if self.length_penalty != plain["length_penalty"].default and not (
            self.beams > 1 or self.scores or self.answers > 1
        ):
            raise UsageError(
                f"--length-penalty {self.length_penalty:g} compares answers of several lengths: add --beams 4, or leave "
                "--length-penalty out."
            )
        if self.sample and self.beams > 1:
            raise UsageError(f"--sample draws each token, and --beams {self.beams} searches: leave one of them out.")
        if not math.isfinite(self.length_penalty):
            raise UsageError(f"--length-penalty {self.length_penalty:g}: it must be a number; 0.6 is T5's.")
        if not 0 < self.temperature < math.inf:
            raise UsageError(
                f"--temperature {self.temperature:g}: it must be above 0; leave --sample out to be greedy."
            )
        if not 0 < self.top_p <= 1:
            raise UsageError(f"--top-p {self.top_p:g}: it must be above 0 and at most 1.")
        if self.max_length and self.min_length > self.max_length:
            raise UsageError(f"--min-length {self.min_length} is above --max-length {self.max_length}.")
        if self.answers > 1 and not self.sample and self.answers > self.beams:
            raise UsageError(f"--answers {self.answers} needs as many beams (--beams {self.answers}), or --sample.")

    def options(self) -> list[str]:
        """Return the options that differ from their defaults, as they are typed.

        >>> Generation(sample=True, top_k=5).options()
        ['--sample', '--top-k 5']
        """
        differing = [field for field in dataclasses.fields(self) if getattr(self, field.name) != field.default]
        return [spelled(field.name, getattr(self, field.name)) for field in differing]
