"""Hold all settings of a training run in one flat record; each default names its source.

A recipe is a TOML file with the settings that differ from the defaults, in t5prep/train/settings/recipes or anywhere else.
`--set key=value` overrides the recipe.
"""

import dataclasses
import importlib.resources
import json
import math
import re
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from t5prep.errors import UsageError, did_you_mean
from t5prep.train.evaluate.metrics import NUMBERS
from t5prep.train.settings import ineffective_settings, other_names
from t5prep.train.step.schedules import NAMES as SCHEDULES


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """Hold the settings of a run. Two runs that are equal in all but the `FREE` fields have the same losses."""

    # What is trained, on what
    data: tuple[str, ...] = ()  # prepared datasets: directories or gs:// prefixes; several are mixed
    rates: tuple[float, ...] = ()  # sampling weight of each dataset; empty: its number of records (Raffel 2020 §3.5.2)
    temperature: float = 1.0  # above 1: rates nearer to each other, records^(1 / temperature) (Raffel 2020 §3.5.2: 2)
    cap: int = 0  # most records of a dataset that count for its rate (seqio: maximum); 0: all
    buckets: tuple[str, ...] = ()  # lengths of batches, INPUTxTARGET tokens each; empty: those of the data
    split: str = "train"
    model: str = ""  # tiny, a Hugging Face directory or Hub name, or a t5prep run
    weights: str = "pretrained"  # or "random"
    out: str = ""  # the run's directory, local or gs://
    tokenizer: str = ""  # where the dataset's SentencePiece model is now; empty: where the manifest says

    # Batch and length of the run
    batch: int = 128  # sequences over all replicas (Raffel 2020 §3.5; T5X finetune.gin)
    steps: int = 0  # 0: `epochs` decide
    epochs: float = 0.0  # 0: `steps` decide
    accumulate: int = 1  # number of micro-batches of a batch, computed one after the other
    seed: int = 0

    # Adapters (LoRA) instead of all weights
    lora: int = 0  # rank of the adapters; 0: all weights are trained
    lora_alpha: float = 16.0  # adapters are multiplied by lora_alpha / lora

    # Optimizer
    optimizer: str = "adafactor"  # Raffel 2020 §3.1.2
    learning_rate: float = 1e-3  # constant, for fine-tuning (Raffel 2020 §3.5)
    schedule: str = "constant"  # one of `schedules.NAMES`
    warmup: float = 0.0  # steps; below 1, a share of all steps
    power: float = 1.0  # of polynomial; 1 is a straight line (transformers, get_polynomial_decay_schedule_with_warmup)
    end_rate: float = 0.0  # the rate at which polynomial ends
    parameter_scale: bool = True  # Adafactor: the rate is relative to each weight's RMS (Shazeer & Stern 2018 §8)
    decay_rate: float = 0.8  # Adafactor's second moment: 1 - step^-0.8 (Shazeer & Stern 2018 §7.2)
    weight_decay: float = 0.0  # T5X adafactor.py; recipes set AdamW's usual 0.01
    beta1: float = 0.9  # AdamW
    beta2: float = 0.999  # AdamW
    epsilon: float = 1e-8  # AdamW (PyTorch)
    clip_norm: float = 0.0  # largest gradient norm of all weights; 0: none (T5X; Adafactor clips each update instead)

    # Loss and arithmetic
    dropout: float = 0.1  # Raffel 2020 §3.1.2; v1.1 was pre-trained without and fine-tunes with it (its model card)
    label_smoothing: float = 0.0  # T5X base.gin
    z_loss: float = 1e-4  # T5X base.gin
    dtype: str = "auto"  # of matrix products: bfloat16, or float32 on a CPU; norms, softmax, logits, loss stay float32
    shard: str = "1"  # devices that one copy of the model is split over; auto: as few as the compiler accepts
    remat: bool = False  # recompute each layer in the backward pass: less memory, a third more work

    # Evaluation, best checkpoint, early stopping
    eval_split: str = "validation"
    eval_every: int = 0  # steps; 0: once an epoch
    eval_batch: int = 0  # 0: as `batch`
    eval_rows: int = 0  # the first records of the split that are evaluated; 0: all
    metric: str = "auto"  # selects the best checkpoint; auto: accuracy where targets are one token, else loss
    patience: int = 0  # evaluations without a better metric until the run stops; 0: never
    generate: bool = False  # also generate at each evaluation and compute the task's metrics
    beams: int = 1  # when generating; 1: greedy

    # Checkpoints, loop, log
    save_every: int = 0  # steps; 0: with each evaluation
    keep: int = 3  # last checkpoints kept, and also the best (wangcongcong123/ttt: keep_ck_num 3)
    log_every: int = 10
    tensorboard: bool = True


# Fields that may change when a run is resumed: they decide paths, intervals and durations, never what is computed.
FREE = frozenset(
    {
        *("data", "out", "tokenizer", "generate", "beams", "patience", "keep", "tensorboard"),
        *("eval_split", "eval_every", "eval_batch", "eval_rows", "save_every", "log_every"),
        *("shard", "metric"),
    }
)
# Fields that decide which numbers an evaluation has: scores of evaluations that differ in them are not compared.
OF_SCORES = ("eval_split", "eval_rows", "generate", "beams", "metric")

_LENGTH = {"steps", "epochs"}
_AT_LEAST_ONE = ("batch", "accumulate", "keep", "log_every", "beams")
_NOT_NEGATIVE = (
    *("steps", "epochs", "lora", "cap", "warmup", "eval_every", "eval_batch", "eval_rows", "patience", "save_every"),
    *("learning_rate", "end_rate", "weight_decay", "clip_norm", "z_loss"),
)
_ABOVE_ZERO = ("power", "lora_alpha", "decay_rate", "epsilon")
_BELOW_ONE = ("dropout", "label_smoothing", "beta1", "beta2")
LEAST_TEMPERATURE = 0.05  # records^(1 / temperature) is still a float
MOST_LORA = 1024  # as wide as the matrices themselves, or nearly

_CHOICES = {
    "weights": ("pretrained", "random"),
    "optimizer": ("adafactor", "adamw"),
    "schedule": SCHEDULES,
    "dtype": ("auto", "bfloat16", "float32"),
}


def recipes() -> dict[str, str]:
    """Return the first comment line of every built-in recipe, by its name."""
    found = sorted(
        importlib.resources.files("t5prep.train.settings").joinpath("recipes").iterdir(), key=lambda file: file.name
    )
    return {
        file.name.removesuffix(".toml"): file.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
        for file in found
        if file.name.endswith(".toml")
    }


def read_recipe(name: str) -> dict[str, Any]:
    """Return the values of a built-in recipe, or of a TOML file. Raises UsageError."""
    if name.endswith(".toml"):
        try:
            text = Path(name).read_text(encoding="utf-8-sig")  # with or without a byte order mark
        except OSError as error:
            raise UsageError(f"The recipe {name} cannot be read ({error.strerror}).") from error
        except UnicodeDecodeError as error:
            raise UsageError(f"The recipe {name} is not text in UTF-8 ({error.reason}). Save it as UTF-8.") from error
    elif name in recipes():
        text = (
            importlib.resources.files("t5prep.train.settings")
            .joinpath("recipes", f"{name}.toml")
            .read_text(encoding="utf-8")
        )
    else:
        raise UsageError(
            f'No recipe is named "{name}".{did_you_mean(name, recipes())} There are {", ".join(recipes())}; '
            "a file of your own ends in .toml."
        )
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"The recipe {name} is not TOML: {error}.") from error


def read_settings(settings: typing.Iterable[str]) -> dict[str, str]:
    """Return `["batch=32"]` as `{"batch": "32"}`. Raises UsageError where there is no `=`."""
    pairs = [setting.partition("=") for setting in settings]
    for key, equals, _ in pairs:
        if not equals:
            raise UsageError(f'--set {key} has no value. Write --set {key}=VALUE, for example "--set batch=32".')
    return {key.strip().replace("-", "_"): value.strip() for key, _, value in pairs}


def build(*sources: Mapping[str, Any]) -> TrainConfig:
    """Return a configuration from values, later ones over earlier ones; text is read as the field's type.

    If a later value makes an earlier one useless (for example another optimizer), the earlier one is dropped.

    >>> build({"batch": 64}, {"batch": "32", "data": "a,b"}).batch
    32
    >>> build({"epochs": 4}, {"steps": 100}).epochs
    0.0

    Raises UsageError for an unknown key (with the closest one), a value of another type, or one that cannot work or
    would do nothing.
    """
    known = typing.get_type_hints(TrainConfig)
    values: dict[str, Any] = {}
    for source in sources:
        if len(other := _LENGTH - source.keys()) == 1:  # `steps` and `epochs` exclude each other: the later one counts
            values.pop(other.pop(), None)
        read: dict[str, Any] = {}
        for key, value in source.items():
            if key not in known:
                raise UsageError(
                    other_names.name_here(key, value)
                    or f'There is no setting "{key}".{did_you_mean(key, known)} They are listed by: t5prep train --settings'
                )
            read[key] = _read(key, value, known[key])
        values = ineffective_settings.without_ineffective(values, read) | read
    config = TrainConfig(**values)
    _check(config)
    ineffective_settings.check(config)
    return config


def _read(key: str, value: Any, kind: Any) -> Any:
    """Return `value`, which comes from TOML, JSON or the command line, as `kind`."""
    try:
        if isinstance(kind, types.GenericAlias):  # tuple[str, ...] or tuple[float, ...]
            parts = [part for part in value.split(",") if part] if isinstance(value, str) else value
            values = tuple(kind.__args__[0](part) for part in parts)
            if not all(math.isfinite(part) for part in values if isinstance(part, float)):
                raise ValueError(value)
            return values
        if kind is bool and isinstance(value, str):
            return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[value.lower()]
        if kind is int and not isinstance(value, int):
            if float(value) != int(float(value)):
                raise ValueError(value)
            return int(float(value))
        if isinstance(value, bool) != (kind is bool):
            raise ValueError(value)
        if kind is float and not math.isfinite(float(value)):
            raise ValueError(value)
        return kind(value)
    except (ValueError, KeyError, TypeError, OverflowError):
        wanted = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}.get(kind, "a list")
        raise UsageError(f"{key} is {value!r}, and should be {wanted}.") from None


def _check(config: TrainConfig) -> None:
    for key, choices in _CHOICES.items():
        value = getattr(config, key)
        if value not in choices:
            ours = other_names.value_here(key, value)
            meant = f" It is {ours} here: --set {key}={ours}" if ours else did_you_mean(value, choices)
            raise UsageError(f'{key} is "{value}".{meant} It can be {", ".join(choices)}.')
    if config.metric not in ("auto", *NUMBERS):
        raise UsageError(
            f'metric is "{config.metric}".{did_you_mean(config.metric, NUMBERS)} It can be auto, {", ".join(NUMBERS)}.'
        )
    for key in _AT_LEAST_ONE:
        if getattr(config, key) < 1:
            raise UsageError(f"{key} is {getattr(config, key)}, and must be at least 1.")
    if config.lora > MOST_LORA:
        raise UsageError(f"lora is {config.lora:,}, and a rank is {MOST_LORA:,} at most; 4 to 64 are usual.")
    for key in _NOT_NEGATIVE:
        if getattr(config, key) < 0:
            raise UsageError(f"{key} is {getattr(config, key)}, and cannot be negative.")
    for key in _ABOVE_ZERO:
        if getattr(config, key) <= 0:
            raise UsageError(f"{key} is {getattr(config, key)}, and must be above 0.")
    for key in _BELOW_ONE:
        if not 0 <= getattr(config, key) < 1:
            raise UsageError(f"{key} is {getattr(config, key)}, and must be at least 0 and below 1.")
    if config.shard != "auto" and not (config.shard.isdecimal() and int(config.shard) > 0):
        raise UsageError(f'shard is "{config.shard}". It can be auto, or a number of devices: --set shard=4')
    if not 0 <= config.seed < 2**31:  # dropout's masks are drawn from an int32
        raise UsageError(f"seed is {config.seed}, and must be at least 0 and below {2**31:,}.")
    if config.end_rate > config.learning_rate:
        raise UsageError(f"end_rate is {config.end_rate}, above the learning_rate of {config.learning_rate}.")
    if config.batch % config.accumulate:
        raise UsageError(f"A batch of {config.batch} cannot be accumulated in {config.accumulate} equal parts.")
    parse_buckets(config.buckets)
    if config.rates and len(config.rates) != len(config.data):
        raise UsageError(f"There are {len(config.rates)} rates for {len(config.data)} datasets; give one for each.")
    if config.rates and min(config.rates) <= 0:
        raise UsageError(f"rates are {', '.join(map(str, config.rates))}, and must each be above 0.")
    if config.temperature < LEAST_TEMPERATURE:
        raise UsageError(
            f"temperature is {config.temperature}, and must be at least {LEAST_TEMPERATURE}: 1 is by records, 2 more equal."
        )
    if config.steps and config.epochs:
        raise UsageError("Both steps and epochs are set; set the other to 0.")


def dumps(config: TrainConfig) -> str:
    """Return the configuration as JSON, for the run's directory and its checkpoints."""
    return json.dumps(dataclasses.asdict(config), indent=2) + "\n"


def differing(ours: TrainConfig, theirs: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the fields that differ and change the losses, as field → (stored, now).

    A field that the other configuration does not have was added since; it had its default then.
    """
    now = json.loads(dumps(ours))
    before = json.loads(dumps(TrainConfig())) | dict(theirs)
    free = FREE | _LENGTH  # `lengthening` checks the length
    return {key: (before[key], value) for key, value in now.items() if key not in free and before[key] != value}


# (input length, target length) of the rows of a bucket, in tokens.
Lengths = tuple[int, int]


def parse_buckets(texts: Sequence[str]) -> list[Lengths]:
    """Return the lengths of buckets as they are typed, the shortest first. Raises UsageError.

    >>> parse_buckets(["512x64", "128x16"])
    [(128, 16), (512, 64)]
    """
    for text in texts:
        if not re.fullmatch(r"[1-9]\d*x[1-9]\d*", text):
            raise UsageError(f'buckets has "{text}". Write INPUTxTARGET tokens for each: --set buckets=128x16,512x64')
    return sorted({(int(inputs), int(targets)) for inputs, _, targets in (text.partition("x") for text in texts)})
