"""Define the public functions `t5prep.plan`, `plan_sweep` and `plan_lengths`, with plain arguments."""

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from t5prep.errors import UsageError
from t5prep.plan import extending, planner
from t5prep.plan import question as asking
from t5prep.plan.extending import Say
from t5prep.plan.lengths import Choice
from t5prep.plan.question import Answer
from t5prep.plan.stages import Plan, questions, stages


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
        lengths=(input_length, target_length), recipe=recipe, settings=settings,
    )  # fmt: skip
    rows = prepared.split.records if prepared else None
    grown = stages(question, rows=rows, price=price, search=search, largest=largest, exact=exact, save=save, say=say)
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
        lengths=(input_length, target_length), recipe=recipe, settings=settings,
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
        answer for each shape. `t5prep.plan.report.epoch_seconds` makes an epoch's time of both.

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
