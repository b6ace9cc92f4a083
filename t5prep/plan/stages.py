"""Answer a user's question about a training step by step: the answer, the largest batch, then advice."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from t5prep.plan import extending, planner, report
from t5prep.plan import question as asking
from t5prep.plan import search as searching
from t5prep.plan.extending import Say
from t5prep.plan.question import Answer, Question
from t5prep.plan.report import Epoch
from t5prep.plan.search import Advice
from t5prep.train import need_tensorflow
from t5prep.train.settings import config as configs


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
    return asked, prepared


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
