"""One question to the compiler: this model, with these settings, on this TPU; and the answer, kept by content."""

import dataclasses
import functools
import hashlib
import importlib.metadata
import json
from pathlib import Path
from typing import Any

import t5prep.train
from t5prep.errors import UsageError
from t5prep.io import atomic_files
from t5prep.plan import compiled
from t5prep.plan.chips import Tpu
from t5prep.plan.compiled import Compiled
from t5prep.plan.models import training_flops
from t5prep.train.config import FREE, TrainConfig
from t5prep.train.model.t5_config import ModelConfig

# Replicas that the step is compiled for: one host's. More hosts add to the all-reduce what no single program shows.
MOST_REPLICAS = 8
# Settings of a run that its step does not depend on.
NOT_IN_A_PROGRAM = FREE | {"batch", "epochs", "metric", "model", "rates", "split", "steps", "weights"}


@dataclasses.dataclass(frozen=True)
class Question:
    """What would train: `settings.batch` rows a step over all devices of the TPU, in static shapes."""

    shape: ModelConfig
    settings: TrainConfig
    tpu: Tpu
    input_length: int
    target_length: int
    packed: bool = False

    @property
    def rows(self) -> int:
        """Rows of the batch on each device."""
        return self.settings.batch // self.tpu.devices

    def with_(self, *, rows: int | None = None, lengths: tuple[int, int] | None = None, **settings: Any) -> "Question":
        """The same question but for the rows on a device, the lengths, or settings of training."""
        if rows is not None:
            settings["batch"] = rows * self.tpu.devices
        inputs, targets = lengths or (self.input_length, self.target_length)
        changed = dataclasses.replace(self.settings, **settings)
        return dataclasses.replace(self, settings=changed, input_length=inputs, target_length=targets)


@dataclasses.dataclass(frozen=True)
class Answer:
    """What the compiler said, and the bytes of float32 weights and optimizer slots in it."""

    question: Question
    compiled: Compiled
    weight_bytes: int
    slot_bytes: int

    @property
    def fits(self) -> bool:
        """Whether the program and all it holds fit in the memory of one device."""
        return self.compiled.fits

    @property
    def step_seconds(self) -> float:
        """The compiler's estimate of a step at the chip's clock. It is a model, not a measurement."""
        return self.compiled.estimated_cycles / self.question.tpu.chip.clock_hz

    @property
    def looped(self) -> bool:
        """Whether layers, parts of the batch or rows are a loop, whose body the compiler's counts hold only once."""
        return self.compiled.loops

    @property
    def model_flops(self) -> int:
        """Of the matrix products that the batch of a device needs, by formula: nothing that is computed twice."""
        one = training_flops(
            self.question.shape, input_length=self.question.input_length, target_length=self.question.target_length
        )
        return one * self.question.rows

    @property
    def flops(self) -> int:
        """As the compiler counts them; by formula where it does not see them all, with a third more for remat."""
        return (
            self.model_flops * (4 if self.question.settings.remat else 3) // 3 if self.looped else self.compiled.flops
        )

    @property
    def share_of_peak(self) -> float:
        """`model_flops` by the estimated time, as a share of what the chip could do: model FLOPs utilization."""
        possible = self.step_seconds * self.question.tpu.chip.peak_flops
        return self.model_flops / possible if possible else 0.0


def ask(question: Question) -> Answer:
    """Lowers and compiles the very step that `train` would run, unless the same was asked before.

    Raises UsageError for a batch that the devices cannot share, and what `compiled.compile_module` raises.
    """
    check(question)
    if answer := recall(question):
        return answer
    from t5prep.train.lowering import lower

    devices = min(question.tpu.devices, MOST_REPLICAS)

    lowered = lower(
        question.shape,
        question.settings,
        rows=question.rows,
        input_length=question.input_length,
        target_length=question.target_length,
        packed=question.packed,
        replicas=devices,
    )
    said = compiled.compile_module(lowered.module, chip=question.tpu.chip, devices=devices)
    answer = Answer(question, said, lowered.weight_bytes, lowered.slot_bytes)
    kept = {"compiled": dataclasses.asdict(said), "weight_bytes": answer.weight_bytes, "slot_bytes": answer.slot_bytes}
    atomic_files.write_scratch(_path(question), json.dumps(kept).encode())
    return answer


def recall(question: Question) -> Answer | None:
    """The answer, if the question was asked before; nothing is compiled."""
    path = _path(question)
    if not path.exists():
        return None
    said = json.loads(path.read_text())
    return Answer(question, Compiled(**said.pop("compiled")), **said)


def check(question: Question) -> None:
    """Raises UsageError when the batch cannot be cut into equal parts, or a number is too large for any program."""
    batch, devices, parts = question.settings.batch, question.tpu.devices, question.settings.accumulate
    lengths = {"input length": question.input_length, "target length": question.target_length}
    for what, number in {"batch": batch, **lengths}.items():
        if number >= 2**31:
            raise UsageError(f"The {what} is {number:,}, and no program takes more than {2**31 - 1:,}.")
    if batch < 1 or batch % (devices * parts):
        unit = devices * parts
        raise UsageError(
            f"A batch of {batch} cannot be cut into equal parts for {devices} devices"
            f"{f' and {parts} accumulated parts' if parts > 1 else ''}: try --batch {max(unit, batch // unit * unit)}."
        )


def _path(question: Question) -> Path:
    devices = min(question.tpu.devices, MOST_REPLICAS)
    key = json.dumps([_computes(question), devices, compiled.versions(), _source()], sort_keys=True)
    return compiled.cache() / "answers" / f"{hashlib.sha256(key.encode()).hexdigest()}.json"


def _computes(question: Question) -> dict[str, Any]:
    """The part of a question that decides the program: not the data's place, nor how often to save."""
    settings = dataclasses.asdict(question.settings)
    return {
        "shape": dataclasses.asdict(question.shape),
        "settings": {name: value for name, value in settings.items() if name not in NOT_IN_A_PROGRAM},
        "rows": question.rows,
        "lengths": [question.input_length, question.target_length, question.packed],
        "chip": dataclasses.astuple(question.tpu.chip),
    }


@functools.cache
def _source() -> list[str]:
    """What else decides the program: TensorFlow's version and the trainer's own source."""
    files = sorted(Path(t5prep.train.__file__).parent.rglob("*.py"))
    source = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    for name in ("tensorflow", "tensorflow-cpu", "tensorflow-tpu"):
        try:
            return [source, importlib.metadata.version(name)]
        except importlib.metadata.PackageNotFoundError:
            continue
    raise UsageError('TensorFlow is not installed, and plan compiles its step: pip install "t5prep[train,plan]"')
