"""Define the public functions `t5prep.plan`, `plan_sweep` and `plan_lengths`.

A plan grows in stages: first the answer to the user's question, then the largest batch, then advice.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence

from t5prep.dataset.prepared import Dataset, DatasetSplit
from t5prep.errors import DatasetError, UsageError
from t5prep.json_values import JSON
from t5prep.options.fields import accepts, build, changed
from t5prep.options.models import PlanOptions
from t5prep.planning import batch_search, extending, lengths, questions, report
from t5prep.planning.batch_search import Advice
from t5prep.planning.chips import parse
from t5prep.planning.extending import Say
from t5prep.planning.lengths import Choice
from t5prep.planning.model_shapes import shape_of
from t5prep.planning.questions import Answer, Question
from t5prep.planning.report import Epoch
from t5prep.training import need_tensorflow
from t5prep.training.model.architecture import training_flops, with_target
from t5prep.training.settings import train_config
from t5prep.training.settings.padding import Padding

# The TPU of a plan without --tpu, and those of a sweep: one host of each kind that TensorFlow trains on.
TPU, SWEEP = "v5e-8", ("v2-8", "v3-8", "v4-8", "v5e-8", "v6e-8")
# Default lengths of inputs and targets. T5 was trained with 512 and 512 (Raffel et al. 2020, 3.1.2), but fine-tuning
# needs no targets of 512.
LENGTHS = (512, 64)


@dataclasses.dataclass(frozen=True)
class Plan:
    """Hold the result of `t5prep.plan`: whether a training run fits a TPU, and its speed by the compiler's estimate.

    * answer: the compiler's answer for this training.
    * epoch: the time and price of a pass over the dataset; None without a dataset, or if the training does not fit.
    * largest: the answer for the largest batch that fits; None if no batch fits, or if `searched` is False.
    * advice: changes with which a training fits that does not fit as it is. `advised` is True if they were searched.
    """

    answer: Answer
    epoch: Epoch | None = None
    largest: Answer | None = None
    advice: tuple[Advice, ...] = ()
    searched: bool = False
    advised: bool = False

    @property
    def fits(self) -> bool:
        """Check whether the step, with weights and activations, fits the memory of one device."""
        return self.answer.fits

    @property
    def hbm_bytes(self) -> int:
        """Return the bytes of memory that the step needs on one device."""
        return self.answer.compiled.hbm_bytes

    @property
    def step_seconds(self) -> float:
        """Return the compiler's estimate of a step, in seconds. It is not a measurement."""
        return self.answer.step_seconds

    def to_json(self) -> dict[str, JSON]:
        """Return the plan as `t5prep plan --json` prints it."""
        payload = report.as_json(self.answer)
        if self.epoch:
            payload["epoch"] = dataclasses.asdict(self.epoch)
        if self.searched:
            payload["largest_batch"] = self.largest.question.settings.batch if self.largest else 0
        if self.advised:
            payload["advice"] = [{"change": advice.words, **report.as_json(advice.answer)} for advice in self.advice]
        return payload


def resolve_questions(options: PlanOptions, *, tpus: Sequence[str]) -> tuple[list[Question], DatasetSplit | None]:
    """Return a question for each of `tpus` with each batch of `options`, and the split of the dataset, if there is one.

    Without a batch, it is that of the settings. Lengths that are not set are the dataset's, or LENGTHS. Raises T5prepError.
    """
    need_tensorflow()
    data = Dataset(options.data).split(options.split) if options.data else None
    config = train_config.build(
        train_config.read_recipe(options.recipe) if options.recipe else {}, options.settings or {}
    )
    name = options.model or config.model
    if not name:
        raise UsageError(
            "No model is named. Name a model, such as --model t5-base, or a --recipe that names a model.",
            code="option.missing",
        )
    shape = shape_of(name, classes=bool(data and data.manifest.target.classes))
    if data and config.weights == "random":  # `train` makes an embedding for each id of the data's tokenizer
        shape = dataclasses.replace(shape, vocab_size=data.manifest.tokenizer.padded_vocab_size)
    if data:
        shape = with_target(shape, data.manifest.target)
    (inputs, targets), learned = data.lengths if data else LENGTHS, shape.objective.target
    if not learned.is_text:
        targets = learned.length(inputs)
    all_questions = [
        Question(
            shape=shape,
            settings=dataclasses.replace(config, model=name, batch=batch),
            tpu=parse(tpu),
            input_length=options.input_length or inputs,
            target_length=options.target_length or targets,
            packed=options.packed or bool(data and data.settings.is_packed),
            padding=Padding.of_dataset(data.manifest) if data else None,
            embed=options.embed,
        )
        for tpu in tpus
        for batch in (options.batch or [config.batch])
    ]
    return all_questions, data


def _only_question(options: PlanOptions) -> tuple[Question, DatasetSplit | None]:
    """Return the question of `options`, and the dataset's split. Raises UsageError for several TPUs or batches."""
    if len(options.tpu) > 1 or len(options.batch) > 1:
        raise UsageError(
            "Several values of --tpu or --batch need a table of plans. Add --sweep (Python: t5prep.plan_sweep).",
            code="option.missing-prerequisite",
        )
    (question,), prepared = resolve_questions(options, tpus=options.tpu or [TPU])
    return question, prepared


def _chosen(values: Mapping[str, object], *, kind: str, without: Sequence[str]) -> PlanOptions:
    """Return the options in `values`. Raises UsageError if one of the options `without` is set, which `kind` ignores."""
    options = build(PlanOptions, values, owner="plan")
    if useless := changed(options, *without):
        raise UsageError(
            f"{kind} does not use {' '.join(useless)}. Remove {' '.join(useless)}.", code="option.inapplicable"
        )
    return options


def recalled(options: PlanOptions) -> Plan | None:
    """Return the plan for `options` from cached compilations; None if one is missing. Compile nothing."""
    answer = extending.recalled(_only_question(options)[0])
    return Plan(answer) if answer else None


def stages(
    question: Question, options: PlanOptions, *, rows: int | None = None, say: Say | None = None
) -> Iterator[Plan]:
    """Yield the plan as it grows: first with the answer, then with the largest batch, then with each advice.

    `rows` is the number of rows of an epoch. `say` is called with a sentence about what is being compiled. Raises
    T5prepError.
    """
    exact, save = options.exact, options.save
    answer = questions.ask(question, save=save) if save or exact else extending.estimate(question, say=say)
    has_time = answer.fits and answer.step_seconds
    grown = Plan(answer, report.epoch(answer, rows=rows, price=options.price) if rows and has_time else None)
    yield grown
    ask = questions.ask if exact else extending.extended
    if options.largest:
        if say:
            say("Looking for the largest batch, by the memory that the compiler plans for a few.")
        most_rows = batch_search.largest_batch(question, compile_question=ask) if exact else _largest_extended(question)
        grown = dataclasses.replace(grown, largest=most_rows, searched=True)
        yield grown
    if not (options.quick or options.embed or answer.fits):
        grown = dataclasses.replace(grown, advised=True)
        for advice in batch_search.advise(question, compile_question=ask):
            grown = dataclasses.replace(grown, advice=(*grown.advice, advice))
            yield grown
        yield grown


def _largest_extended(question: Question) -> Answer | None:
    """Return the extended answer for the most rows that fit, or None. The search plans only the memory, in seconds."""
    like = extending.extended(question)
    plan = functools.partial(extending.planned, like=like)
    largest = batch_search.largest_batch(question, compile_question=plan)
    while largest and not (answer := extending.extended(largest.question)).fits:
        # The search assumed the program size of the smaller batch, and this program is larger. Try fewer rows, by a
        # sixteenth, which is the precision of the search.
        unit, rows = question.settings.accumulate, largest.question.rows
        fewer = rows - max(unit, rows // 16 // unit * unit)
        largest = dataclasses.replace(largest, question=question.with_(rows=fewer)) if fewer >= unit else None
    return answer if largest else None


@accepts(PlanOptions)
def plan(*, watch: Callable[[Plan], None] | None = None, say: Say | None = None, **options: object) -> Plan:
    """Check whether a training run fits a TPU, and estimate its speed, before you rent one.

    Google's TPU compiler compiles the step of `t5prep.train` on this machine, which needs no TPU. It plans the memory of
    all layers. The time of a T5 is extrapolated from a few layers of each kind. Answers are cached.

    Args:
        watch: Called with the Plan after each stage: the answer, the largest batch, each advice.
        say: Called with a sentence about what is being compiled.
        **options

    Returns:
        A Plan: `fits`, `hbm_bytes`, `step_seconds`, and the compiler's answers.

    Raises:
        T5prepError: TensorFlow or the compiler is missing, the model or TPU is unknown, or the batch cannot be divided by
            the devices.

    Example:
        plan = t5prep.plan(model="t5-small", data="data/sample", tpu="v5e-8", batch=64, quick=True)
        print(plan.fits, plan.step_seconds, plan.epoch.hours)
    """
    chosen = build(PlanOptions, options, owner="plan")
    question, prepared = _only_question(chosen)
    for last in stages(question, chosen, rows=prepared.records if prepared else None, say=say):
        if watch:
            watch(last)
    return last


@accepts(PlanOptions)
def plan_sweep(*, say: Say | None = None, **options: object) -> Iterator[Plan]:
    """Yield a Plan for each TPU and each batch, as soon as it is compiled, without searching batches or advice.

    All combinations are checked before the first is compiled. Without `tpu`, the TPUs are one host of each kind.

    Args:
        say: As for `plan`.
        **options

    Returns:
        An iterator over the plans, TPU by TPU.

    Raises:
        T5prepError: As for `plan`; also for an option that a sweep does not use: `save`, `largest` or `quick`.

    Example:
        for plan in t5prep.plan_sweep(model="t5-small", tpu=["v5e-4", "v5e-8"], batch=64):
            print(plan.answer.question.tpu.name, plan.fits, plan.step_seconds)
    """
    chosen = _chosen(options, kind="--sweep", without=("save", "largest", "quick"))
    all_questions, prepared = resolve_questions(chosen, tpus=chosen.tpu or SWEEP)
    for question in all_questions:
        questions.check(question)
    rows = prepared.records if prepared else None
    for question in all_questions:
        if say:
            say(f"Compiling for {question.tpu.name}, batch {question.settings.batch}.")
        yield next(stages(question, chosen, rows=rows))


@accepts(PlanOptions)
def plan_lengths(*, say: Say | None = None, **options: object) -> list[tuple[Choice, list[Answer]]]:
    """Compare layouts of a dataset (shorter lengths, length buckets, packing), with the compiler's answer for each shape.

    The lengths of the dataset's rows come from its manifest.

    Args:
        say: As for `plan`.
        **options

    Returns:
        A list of (choice, answers). A Choice has a name, shapes with their rows, and the shares of padding and of cut rows.
        There is an answer for each shape. `t5prep.planning.report.epoch_seconds` returns the time of an epoch of both.

    Raises:
        T5prepError: As for `plan`; also for a packed dataset, and for an option that is not used.

    Example:
        for choice, answers in t5prep.plan_lengths(model="t5-small", data="data/sample", batch=64):
            print(choice.name, choice.padding, all(answer.fits for answer in answers))
    """
    unused = ("input_length", "target_length", "packed", "embed", "price", "save", "largest", "quick")
    chosen = _chosen(options, kind="--lengths", without=unused)
    question, prepared = _only_question(chosen)
    if prepared is None:
        raise UsageError(
            "--lengths needs a dataset with its histogram of lengths. Name one: --data DATA", code="option.missing"
        )
    if prepared.settings.is_packed:
        raise DatasetError(
            f"{prepared.folder} is packed, so its lengths cannot be planned. Use a dataset that is not packed.",
            code="plan.packed-dataset",
        )
    if prepared.manifest.target.is_aligned:
        raise DatasetError(
            f"{prepared.folder} has a label for each token, so its targets are as long as its inputs. Use "
            "--input-length instead of --lengths.",
            code="plan.token-targets",
        )
    ask = questions.ask if chosen.exact else functools.partial(extending.estimate, say=say)

    def cost(inputs: int, targets: int) -> float:
        """Return the FLOPs of a row with these lengths."""
        return training_flops(question.shape, input_length=inputs, target_length=targets)

    joint = lengths.histogram(prepared.facts, folder=prepared.folder)
    answers = []
    for choice in lengths.choices(joint, prepared=prepared.lengths, cost=cost):
        packed = choice.name == "packed"
        shape_questions = [
            dataclasses.replace(question.with_(lengths=(s.input_length, s.target_length)), packed=packed)
            for s in choice.shapes
        ]
        answers.append((choice, [ask(shape_question) for shape_question in shape_questions]))
    return answers
