"""Ask the TPU compiler about one training (a model, settings, a TPU and lengths), and cache its answer."""

import dataclasses
import functools
import hashlib
import importlib.metadata
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from t5prep.errors import UsageError
from t5prep.io import byte_sizes, store
from t5prep.io.installation import install_command
from t5prep.json_values import JSONObject
from t5prep.planning import compiled, compiler
from t5prep.planning.chips import Tpu
from t5prep.planning.compiled import Compiled
from t5prep.training.model.architecture import Config, training_flops, with_classes
from t5prep.training.model.switches import turned_off
from t5prep.training.model.weight_layout import weight_bytes
from t5prep.training.settings import train_config
from t5prep.training.settings.padding import Padding
from t5prep.training.settings.train_config import FREE, TrainConfig

# Settings of a run that do not change the program of its step. They are left out of an answer's key in the cache.
NOT_IN_A_PROGRAM = (FREE - {"shard"}) | {
    *("batch", "epochs", "metric", "model", "split", "steps", "weights"),
    *("rates", "temperature", "cap", "buckets"),
}
NOT_IN_A_PROGRAM |= {"learning_rate", "schedule", "warmup", "power", "end_rate"}
# Limits against forged or mistyped models, far above any real one. They are the memory of the largest slice (8,960 chips of
# v5p), and the multiplications of its chips in an hour.
MOST_WEIGHT_BYTES = 1 << 50
MOST_PRODUCTS = 1 << 72


@dataclasses.dataclass(frozen=True)
class Question:
    """Hold a question to the compiler: a model's shape, settings, a TPU, and lengths.

    * settings: `settings.batch` is the number of rows of a step over all devices.
    * padding: the dataset's Padding; None if it is unknown.
    * memory_alone: True to plan only the memory (`compiled.planned_memory`).
    * embed: True for the program of `t5prep embed`, the encoder's forward pass, instead of a training step.
    """

    shape: Config
    settings: TrainConfig
    tpu: Tpu
    input_length: int
    target_length: int
    packed: bool = False
    padding: Padding | None = None
    memory_alone: bool = False
    embed: bool = False

    @property
    def shard(self) -> int:
        """Return the number of devices that hold one replica of the model; 1 for "auto", which is decided in `ask`."""
        return 1 if self.settings.shard == "auto" else int(self.settings.shard)

    @property
    def replicas(self) -> int:
        """Return the number of replicas of the model, which share the batch."""
        return max(self.tpu.devices // self.shard, 1)

    @property
    def rows(self) -> int:
        """Return the rows of the batch on each replica."""
        return self.settings.batch // self.replicas

    def with_(self, *, rows: int | None = None, lengths: tuple[int, int] | None = None, **settings: Any) -> "Question":
        """Return the question with other `rows` on a replica, (input, target) `lengths`, or settings of TrainConfig."""
        if rows is not None:
            settings["batch"] = rows * self.replicas
        inputs, targets = lengths or (self.input_length, self.target_length)
        changed = dataclasses.replace(self.settings, **settings)
        return dataclasses.replace(self, settings=changed, input_length=inputs, target_length=targets)


@dataclasses.dataclass(frozen=True)
class Answer:
    """Hold the compiler's answer to a question, for one device.

    `extended` is True if the figures are extrapolated from steps with fewer layers (`extending`).
    """

    question: Question
    compiled: Compiled
    extended: bool = False

    @property
    def fits(self) -> bool:
        """Check whether the program, with weights and activations, fits the memory of one device."""
        return self.compiled.fits

    @property
    def step_seconds(self) -> float:
        """Return the compiler's estimate of a step's seconds, at the chip's clock. It is no measurement."""
        return self.compiled.estimated_cycles / self.question.tpu.chip.clock_hz

    @property
    def looped(self) -> bool:
        """Check whether the program has a loop (over layers, parts of a batch or rows): its FLOPs are counted once."""
        return self.compiled.loops

    @property
    def model_flops(self) -> int:
        """Return the FLOPs of matrix products for a device's share of the batch, by formula, without recomputation."""
        question = self.question
        lengths = {"input_length": question.input_length, "target_length": question.target_length}
        if question.embed:  # no backward pass, which takes two thirds of the FLOPs
            row_flops = training_flops(with_classes(question.shape, ("",)), **lengths) // 3
        else:
            row_flops = training_flops(question.shape, **lengths)
        return row_flops * self.question.rows // self.question.shard

    @property
    def flops(self) -> int:
        """Return the FLOPs that the compiler counts; if there are loops, `model_flops`, with a third more for remat."""
        return (
            self.model_flops * (4 if self.question.settings.remat else 3) // 3 if self.looped else self.compiled.flops
        )

    @property
    def share_of_peak(self) -> float:
        """Return the model FLOPs utilization: `model_flops` over the estimated time, as a share of the chip's peak."""
        possible = self.step_seconds * self.question.tpu.chip.peak_flops
        return self.model_flops / possible if possible else 0.0


Ask = Callable[[Question], Answer]  # compiles a question, or returns its cached answer


def ask(question: Question, *, save: str = "") -> Answer:
    """Return the compiler's answer to a question, from the cache if the same question was asked before.

    The compiled step is the one that `train` would run. `save` is a run's directory: the executable is saved where `train`
    finds it (`compiling.place_of`). With shard=auto, the answer is the first that fits, or the last one. Raises UsageError
    for a batch that the devices cannot share, and the errors of `compiled.compile_for`.
    """
    check(question)
    if question.settings.shard == "auto":
        for candidate in widths(question):
            answer = ask(candidate, save=save)
            if answer.fits:
                break
        return answer
    if not save and (cached_answer := recall(question)):
        return cached_answer
    step: compiler.Step = {
        "shape": dataclasses.asdict(question.shape),
        "settings": dataclasses.asdict(question.settings),
        "input_length": question.input_length,
        "target_length": question.target_length,
        "packed": question.packed,
        "padding": _padding(question),
        "shard": question.shard,
        "embed": question.embed,
    }
    if question.memory_alone:
        compiled_step = compiled.planned_memory(step, chip=question.tpu.chip, devices=question.tpu.devices)
    else:
        request: compiler.Request = {"step": step, "save": save}
        compiled_step = compiled.compile_for(request, chip=question.tpu.chip, devices=question.tpu.devices)
    # Without `saved`: a later question with the same answer saves nothing.
    text = json.dumps(dataclasses.asdict(dataclasses.replace(compiled_step, saved="")))
    _answers().put(_name(question), text.encode())
    return Answer(question, compiled_step)


def widths(question: Question) -> Iterator[Question]:
    """Yield the question with each value of `shard` that "auto" tries: 1, 2, 4 and so on, while it divides the devices."""
    weights, shard = weight_bytes(question.shape), 1
    while question.tpu.devices % shard == 0:
        last = question.tpu.devices % (2 * shard) != 0
        if last or weights / shard < question.tpu.chip.hbm_bytes:  # compile nothing that cannot even hold the weights
            yield question.with_(shard=str(shard))
        shard *= 2


def recall(question: Question) -> Answer | None:
    """Return the cached answer to a question, or None. Compile nothing."""
    if question.settings.shard == "auto":
        answers = [recall(candidate) for candidate in widths(question)]
        return next((answer for answer in answers if answer and answer.fits), None)
    cached_json = _answers().get(_name(question))
    return Answer(question, Compiled(**json.loads(cached_json))) if cached_json is not None else None


def check(question: Question) -> None:
    """Raise UsageError if the batch cannot be divided into equal parts, or if a number is too large for any TPU."""
    if question.tpu.devices % question.shard:
        raise UsageError(
            f"The setting shard={question.shard} does not divide the {question.tpu.devices} devices of "
            f"{question.tpu.name}. Choose a divisor of {question.tpu.devices}.",
            code="device.indivisible-shard",
        )
    batch, devices, parts = question.settings.batch, question.replicas, question.settings.accumulate
    lengths = {"input length": question.input_length, "target length": question.target_length}
    for name, number in {"batch": batch, **lengths}.items():
        if number >= 2**31:
            raise UsageError(
                f"The {name} {number:,} is too large for any program. Use at most {2**31 - 1:,}.",
                code="option.out-of-range",
            )
    weights = weight_bytes(question.shape)
    if weights > MOST_WEIGHT_BYTES:
        raise UsageError(
            f"The weights of {question.settings.model[:200]} take {byte_sizes.text(weights)}, but the "
            f"largest TPU holds {byte_sizes.text(MOST_WEIGHT_BYTES)}. Fetch the config.json of the model "
            "again.",
            code="plan.oversized-model",
        )
    row = question.shape.products(input_length=question.input_length, target_length=question.target_length)
    if (products := batch * row) > MOST_PRODUCTS:
        raise UsageError(
            f"A step needs {float(products):.1e} multiplications, but no TPU computes more than "
            f"{float(MOST_PRODUCTS):.1e} in an hour. Use a smaller --batch or --input-length.",
            code="plan.oversized-step",
        )
    if batch < 1 or batch % (devices * parts):
        unit = devices * parts
        raise UsageError(
            f"A batch of {batch} cannot be divided equally among {devices} "
            f"{'devices' if question.shard == 1 else 'replicas'}"
            f"{f' and {parts} accumulated parts' if parts > 1 else ''}. Use --batch "
            f"{max(unit, batch // unit * unit)}.",
            code="device.indivisible-batch",
        )


def _answers() -> store.Store:
    return store.Store(str(store.root() / "plan" / "answers"), ".json")


def _name(question: Question) -> str:
    """Return the name of a question in the cache: a digest of everything that decides its answer."""
    key = json.dumps([_computes(question), question.tpu.devices, compiled.versions(), _source()], sort_keys=True)
    return hashlib.sha256(key.encode()).hexdigest()


def _computes(question: Question) -> JSONObject:
    """Return the part of a question that decides the program, for its key in the cache.

    Settings such as the path of the data are not part of it (NOT_IN_A_PROGRAM).
    """
    settings = dataclasses.asdict(question.settings)
    return {
        "shape": dataclasses.asdict(question.shape),
        "settings": {name: value for name, value in settings.items() if name not in NOT_IN_A_PROGRAM},
        "rows": question.rows,
        "lengths": [question.input_length, question.target_length, question.packed],
        "padding": _padding(question),
        "chip": dataclasses.astuple(question.tpu.chip),
        "memory_alone": question.memory_alone,
        "embed": question.embed,
        "turned_off": turned_off(),
    }


def _padding(question: Question) -> dict[str, Any]:
    return dataclasses.asdict(question.padding or Padding.of_model(question.shape))


@functools.cache
def _source() -> list[str]:
    """Return the digest of the trainer's source and TensorFlow's version: both decide the program, too.

    A change of the code therefore makes all cached answers invalid. Raises UsageError without TensorFlow.
    """
    folders = (Path(train_config.__file__).parents[1], Path(__file__).parent)
    files = [file for folder in folders for file in sorted(folder.rglob("*.py"))]
    source = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    for name in ("tensorflow", "tensorflow-cpu"):
        try:
            return [source, importlib.metadata.version(name)]
        except importlib.metadata.PackageNotFoundError:
            continue
    raise UsageError(
        "TensorFlow is not installed, but t5prep plan needs it to build the step. Install it: "
        f"{install_command('train', 'plan')}",
        code="install.extra-missing",
    )
