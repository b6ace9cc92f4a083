"""Define the public functions `t5prep.plan`, `plan_sweep` and `plan_lengths`, with plain arguments.

A plan grows stage by stage: the answer to the user's question, the largest batch, then advice.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from t5prep.errors import UsageError
from t5prep.planning import extending, planner, report
from t5prep.planning import question as asking
from t5prep.planning import search as searching
from t5prep.planning.extending import Say
from t5prep.planning.lengths import Choice
from t5prep.planning.question import Answer, Question
from t5prep.planning.report import Epoch
from t5prep.planning.search import Advice
from t5prep.training import need_tensorflow
from t5prep.training.settings import config as configs


@dataclasses.dataclass(frozen=True)
class Plan:
    """The result of `t5prep.plan`: whether a training fits a TPU, and how fast it is by the compiler's estimate.

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


def questions(
    *,
    model: str,
    data: str | None,
    split: str,
    tpus: Sequence[str],
    batches: Sequence[int],
    lengths: tuple[int | None, int | None] = (None, None),
    packed: bool = False,
    recipe: str | None,
    settings: Mapping[str, Any] | None,
    embed: bool = False,
) -> tuple[list[Question], planner.Data | None]:
    """Return a question for each TPU with each batch, and what planning needs of the dataset. Raises T5prepError."""
    need_tensorflow()
    prepared = planner.read(data, split=split) if data else None
    asked = planner.questions(
        model=model,
        tpus=tpus,
        batches=batches,
        data=prepared,
        lengths=lengths,
        packed=packed,
        settings=[configs.read_recipe(recipe) if recipe else {}, settings or {}],
    )
    return [dataclasses.replace(one, embed=embed) for one in asked], prepared


def recalled(
    *, data: str, split: str, tpu: str, batch: int, settings: Mapping[str, Any], model: str = ""
) -> Plan | None:
    """Return the plan that earlier compilations give for these arguments of `plan`, else None; compile nothing."""
    (question,), _ = questions(
        model=model, data=data, split=split, tpus=[tpu], batches=[batch], recipe=None, settings=settings
    )
    answer = extending.recalled(question)
    return Plan(answer) if answer else None


def stages(
    question: Question,
    *,
    rows: int | None = None,
    price: float | None = None,
    search: bool = False,
    largest: bool = False,
    exact: bool = False,
    save: str = "",
    say: Say | None = None,
) -> Iterator[Plan]:
    """Yield the plan as it grows: first with the answer, then with the largest batch, then with each advice.

    `search` looks for advice, and only where the training does not fit. `say` is told what is being compiled.
    Raises T5prepError.
    """
    if save:
        answer = asking.ask(question, save=save)
    else:
        answer = asking.ask(question) if exact else extending.estimate(question, asking=asking.ask, say=say)
    epoch = report.epoch(answer, rows=rows, price=price) if rows and answer.fits and answer.step_seconds else None
    grown = Plan(answer, epoch)
    yield grown
    ask = asking.ask if exact else functools.partial(extending.extended, asking=asking.ask)
    if largest:
        if say:
            say("Looking for the largest batch, by the memory that the compiler plans for a few.")
        most_rows = searching.largest_batch(question, asking=ask) if exact else _largest_extended(question)
        grown = dataclasses.replace(grown, largest=most_rows, searched=True)
        yield grown
    if search and not answer.fits:
        grown = dataclasses.replace(grown, advised=True)
        for advice in searching.advise(question, asking=ask):
            grown = dataclasses.replace(grown, advice=(*grown.advice, advice))
            yield grown
        yield grown


def _largest_extended(question: Question) -> Answer | None:
    """Return the extended answer for the most rows that fit, which are searched by planning the memory alone."""
    like = extending.extended(question, asking=asking.ask)
    plan = functools.partial(extending.planned, like=like, asking=asking.ask)
    largest = searching.largest_batch(question, asking=plan)
    while largest and not (answer := extending.extended(largest.question, asking=asking.ask)).fits:
        # Its program is larger than that of the rows which were asked for: one step less, as exact as the search is.
        unit, rows = question.settings.accumulate, largest.question.rows
        fewer = rows - max(unit, rows // 16 // unit * unit)
        largest = dataclasses.replace(largest, question=question.with_(rows=fewer)) if fewer >= unit else None
    return answer if largest else None


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
    save: str = "",
    embed: bool = False,
    watch: Callable[[Plan], None] | None = None,
    say: Say | None = None,
) -> Plan:
    """Say whether a training fits a TPU and about how fast it is, before anything is paid for.

    The step that `t5prep.train` would run is compiled by Google's TPU compiler on this machine, which needs no TPU. The
    memory of a T5 of many layers is planned for all of them; its time is that of a few layers of each kind, extended to all.
    Answers are kept in the cache.

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
        save: A run's directory: all layers are compiled, and the executable is kept for `t5prep.train(out=save)`.
        embed: Whether to ask about `t5prep.embed` instead of a training: the encoder alone, on inputs of this length.
        watch: Is called with the Plan each time that it has grown: by the answer, the largest batch, each advice.
        say: Is called with a sentence about what is being compiled.

    Returns:
        A Plan: `fits`, `hbm_bytes`, `step_seconds`, and the parts that they come from.

    Raises:
        T5prepError: In one sentence: TensorFlow or the compiler is missing, the model or TPU is not known, or the batch
            cannot be shared by the devices.

    Example:
        plan = t5prep.plan(model="t5-small", data="data/sample", tpu="v5e-8", batch=64, search=False)
        print(plan.fits, plan.step_seconds, plan.epoch.hours)
    """
    _check_price(price)
    (question,), prepared = questions(
        model=model, data=data, split=split, tpus=[tpu], batches=[batch] if batch else [], packed=packed,
        lengths=(input_length, target_length), recipe=recipe, settings=settings, embed=embed,
    )  # fmt: skip
    rows = prepared.split.records if prepared else None
    grown = stages(
        question, rows=rows, price=price, search=search and not embed, largest=largest, exact=exact, save=save, say=say
    )
    for last in grown:
        if watch:
            watch(last)
    return last


def plan_sweep(
    *,
    tpus: Sequence[str],
    batches: Sequence[int] = (),
    model: str = "",
    data: str | None = None,
    split: str = "train",
    input_length: int | None = None,
    target_length: int | None = None,
    packed: bool = False,
    recipe: str | None = None,
    settings: Mapping[str, Any] | None = None,
    price: float | None = None,
    exact: bool = False,
    embed: bool = False,
    say: Say | None = None,
) -> Iterator[Plan]:
    """Yield a Plan for each TPU with each batch, each as soon as it is compiled; nothing is searched.

    All combinations are checked before the first is compiled.

    Args:
        tpus: Types of TPU, such as `["v5e-4", "v5e-8"]`.
        batches: Rows a step over all devices; the recipe's or the trainer's own by default.
        model: As for `plan`.
        data: As for `plan`.
        split: As for `plan`.
        input_length: As for `plan`.
        target_length: As for `plan`.
        packed: As for `plan`.
        recipe: As for `plan`.
        settings: As for `plan`.
        price: As for `plan`.
        exact: As for `plan`.
        embed: As for `plan`.
        say: As for `plan`.

    Returns:
        An iterator over a Plan for each TPU and each batch of it.

    Raises:
        T5prepError: In one sentence, as for `plan`.

    Example:
        for plan in t5prep.plan_sweep(model="t5-small", tpus=["v5e-4", "v5e-8"], batches=[64]):
            print(plan.answer.question.tpu.name, plan.fits, plan.step_seconds)
    """
    _check_price(price)
    asked, prepared = questions(
        model=model, data=data, split=split, tpus=tpus, batches=batches, packed=packed,
        lengths=(input_length, target_length), recipe=recipe, settings=settings, embed=embed,
    )  # fmt: skip
    for question in asked:
        asking.check(question)
    rows = prepared.split.records if prepared else None
    for question in asked:
        if say:
            say(f"Compiling for {question.tpu.name}, batch {question.settings.batch}.")
        yield next(stages(question, rows=rows, price=price, exact=exact))


def plan_lengths(
    *,
    data: str,
    model: str = "",
    split: str = "train",
    tpu: str = "v5e-8",
    batch: int | None = None,
    recipe: str | None = None,
    settings: Mapping[str, Any] | None = None,
    exact: bool = False,
    say: Say | None = None,
) -> list[tuple[Choice, list[Answer]]]:
    """Return the ways to lay out a dataset (shorter, in buckets, packed), with the compiler's answer for each shape.

    Args:
        data: A prepared dataset, which is not packed: its lengths are counted in its manifest.
        model: As for `plan`.
        split: As for `plan`.
        tpu: As for `plan`.
        batch: As for `plan`.
        recipe: As for `plan`.
        settings: As for `plan`.
        exact: As for `plan`.
        say: As for `plan`.

    Returns:
        A list of (choice, answers): a Choice has a name, shapes with their rows, its padding and what it cuts; there is an
        answer for each shape. `t5prep.planning.report.epoch_seconds` makes an epoch's time of both.

    Raises:
        T5prepError: In one sentence, as for `plan`; and for a dataset that is packed.

    Example:
        for choice, answers in t5prep.plan_lengths(model="t5-small", data="data/sample", batch=64):
            print(choice.name, choice.padding, all(answer.fits for answer in answers))
    """
    (question,), prepared = questions(
        model=model, data=data, split=split, tpus=[tpu], batches=[batch] if batch else [], recipe=recipe,
        settings=settings,
    )  # fmt: skip
    assert prepared is not None
    ask = asking.ask if exact else functools.partial(extending.estimate, asking=asking.ask, say=say)
    return planner.plan_lengths(question, prepared, asking=ask)


def _check_price(price: float | None) -> None:
    if price is not None and not math.isfinite(price):
        raise UsageError(f"--price {price} is not a price. Write it like this: --price 1.20")
