"""Define the public function `t5prep.plan`, with plain arguments."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

from t5prep.plan import extending, planner, report
from t5prep.plan import question as asking
from t5prep.plan import search as searching
from t5prep.plan.extending import Say
from t5prep.plan.question import Answer, Question
from t5prep.plan.report import Epoch
from t5prep.plan.search import Advice
from t5prep.train import config as configs
from t5prep.train.installed import need_tensorflow


@dataclasses.dataclass(frozen=True)
class Plan:
    """Hold what `t5prep.plan` returns: whether a training fits a TPU, and how fast it is by the compiler's estimate.

    `answer` is the compiler's answer for this training. `epoch` is a pass over the dataset; None without a dataset, or
    where the training does not fit. `largest` is the answer for the largest batch that fits, None where none fits or it was
    not searched (`searched`). `advice` has changes that make a training fit that does not.
    """

    answer: Answer
    epoch: Epoch | None = None
    largest: Answer | None = None
    advice: tuple[Advice, ...] = ()
    searched: bool = False
    advised: bool = False

    @property
    def fits(self) -> bool:
        """Check whether the step and all that it holds fit in the memory of one device."""
        return self.answer.fits

    @property
    def hbm_bytes(self) -> int:
        """Return the bytes that one device needs."""
        return self.answer.compiled.hbm_bytes

    @property
    def step_seconds(self) -> float:
        """Return the compiler's estimate of a step, in seconds. It is not a measurement."""
        return self.answer.step_seconds

    def to_json(self) -> dict[str, Any]:
        """Return what `t5prep plan --json` prints."""
        shown = report.as_json(self.answer)
        if self.epoch:
            shown["epoch"] = dataclasses.asdict(self.epoch)
        if self.searched:
            shown["largest_batch"] = self.largest.question.settings.batch if self.largest else 0
        if self.advised:
            shown["advice"] = [{"change": one.words, **report.as_json(one.answer)} for one in self.advice]
        return shown


def plan(
    *,
    model: str = "",
    data: str | None = None,
    split: str = "train",
    tpu: str = "v5e-8",
    batch: int | None = None,
    input_length: int | None = None,
    target_length: int | None = None,
    packed: bool = False,
    recipe: str | None = None,
    settings: Mapping[str, Any] | None = None,
    price: float | None = None,
    search: bool = True,
    largest: bool = False,
    exact: bool = False,
) -> Plan:
    """Say whether a training fits a TPU and about how fast it is, before anything is paid for.

    The step that `t5prep.train` would run is compiled by Google's TPU compiler on this machine, which needs no TPU. A model
    of many layers is compiled with two and with three layers of each kind, and the figures are extended to all of them;
    answers are kept in the cache.

    Args:
        model: A published model ("t5-base", "bert-base-uncased", ...) or a directory with config.json. May be left out where
            the recipe has one.
        data: A prepared dataset: its lengths, its layout, and how many rows an epoch has.
        split: The split whose rows make an epoch.
        tpu: The type of TPU: "v2-8", "v5e-4", "v6e-8", ...
        batch: Rows a step over all devices; the recipe's or the trainer's own by default.
        input_length: Tokens of an input, instead of the dataset's (or 512).
        target_length: Tokens of a target, instead of the dataset's (or 64).
        packed: Whether rows hold several examples each.
        recipe: Settings by name, or a TOML file, as for `t5prep.train`.
        settings: Single settings over the recipe's, such as `{"remat": True}`.
        price: What one chip costs for an hour, in any currency: the epoch then has a price.
        search: Whether to look for what would make a training fit that does not.
        largest: Whether to look for the largest batch that fits.
        exact: Whether to compile all layers.

    Returns:
        A Plan: `fits`, `hbm_bytes`, `step_seconds`, and the parts that they come from.

    Raises:
        T5prepError: In one sentence: TensorFlow or the compiler is missing, the model or TPU is not known, or the batch
            cannot be shared by the devices.

    Example:
        plan = t5prep.plan(model="t5-small", data="data/sample", tpu="v5e-8", batch=64, search=False)
        print(plan.fits, plan.step_seconds, plan.epoch.hours)
    """
    need_tensorflow()
    prepared = planner.read(data, split=split) if data else None
    question = planner.questions(
        model=model,
        tpus=[tpu],
        batches=[batch] if batch else [],
        data=prepared,
        lengths=(input_length, target_length),
        packed=packed,
        settings=[configs.read_recipe(recipe) if recipe else {}, settings or {}],
    )[0]
    rows = prepared.split.records if prepared else None
    *_, last = stages(question, rows=rows, price=price, search=search, largest=largest, exact=exact)
    return last


def stages(
    question: Question,
    *,
    rows: int | None = None,
    price: float | None = None,
    search: bool = True,
    largest: bool = False,
    exact: bool = False,
    say: Say | None = None,
) -> Iterator[Plan]:
    """Yield the plan as it grows: first with the answer, then with the largest batch, then with each advice.

    `say` is told what is being compiled. Raises T5prepError.
    """
    answer = asking.ask(question) if exact else extending.estimate(question, asking=asking.ask, say=say)
    epoch = report.epoch(answer, rows=rows, price=price) if rows and answer.fits else None
    grown = Plan(answer, epoch)
    yield grown
    ask = asking.ask if exact else functools.partial(extending.extended, asking=asking.ask)
    if largest:
        if say:
            say("Looking for the largest batch, by the line through a few compilations.")
        grown = dataclasses.replace(grown, largest=searching.largest_batch(question, asking=ask), searched=True)
        yield grown
    if search and not answer.fits:
        grown = dataclasses.replace(grown, advised=True)
        for advice in searching.advise(question, asking=ask):
            grown = dataclasses.replace(grown, advice=(*grown.advice, advice))
            yield grown
        yield grown
