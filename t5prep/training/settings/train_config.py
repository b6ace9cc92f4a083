"""Define all settings of a training run as fields of one flat record; comments name the source of each default.

A new setting is a field here, and the code that uses it. The field also defines the help and checks of the command line, the
names of the setting in other trainers, and whether a resumed run may change it.

A recipe is a TOML file with the settings that differ from the defaults, in t5prep/training/settings/recipes or anywhere else.
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
from typing import Any

from t5prep.errors import UsageError, did_you_mean
from t5prep.io import paths
from t5prep.json_values import JSON, JSONObject, whole_number
from t5prep.options.fields import Wording, check, check_effect, has_effect, option
from t5prep.training.objectives import NUMBERS
from t5prep.training.step.schedules import NAMES as SCHEDULES

# (input length, target length) of the rows of a bucket, in tokens.
Lengths = tuple[int, int]
_OnlyWith = Mapping[str, tuple[JSON, ...]]
# The name of the small models with random weights and without a tokenizer (`training.run.run`), which the recipe `tiny` trains.
TINY_MODEL = "tiny"
# A note to the names that other trainers have for `batch`.
_ALL_DEVICES = "batch counts the rows of a step over all devices and all parts of an accumulation"


def setting(
    default: object,
    help: str,
    *,
    names: str | Mapping[str, str] = "",
    free: bool = False,
    of_evaluation: bool = False,
    of_scores: bool = False,
    **rules: Any,
) -> Any:
    """Return a dataclass field for one setting: an option (`t5prep.options.fields.option` describes `rules`) with marks.

    * names: the names of the setting in other trainers, separated by spaces, or mapped to a note for the user.
    * free: True if the setting may change when a run is resumed. It decides paths, intervals or durations, never what is
      computed.
    * of_evaluation: True if the setting has no effect without an evaluation split.
    * of_scores: True if the setting decides the numbers of an evaluation.
    """
    marks = {
        "names": dict.fromkeys(names.split(), "") if isinstance(names, str) else dict(names),
        "free": free,
        "of_evaluation": of_evaluation,
        "of_scores": of_scores,
    }
    return dataclasses.field(default=default, metadata={**option(default, help, **rules).metadata, **marks})


def _as_setting(name: str, value: object) -> str:
    """Return the setting `name` with `value` as a user would type it: `--set generate=true`."""
    return f"--set {name}={str(value).lower() if isinstance(value, bool) else value}"


# How errors name a setting.
_SETTING = Wording(
    str,
    _as_setting,
    lambda name: _as_setting(name, "N"),
    "setting.unknown-choice",
    "setting.out-of-range",
    "setting.inapplicable",
)
_ADAFACTOR: _OnlyWith = {"optimizer": ("adafactor",)}
_ADAMW: _OnlyWith = {"optimizer": ("adamw",)}
_POLYNOMIAL: _OnlyWith = {"schedule": ("polynomial",)}
_NOT_CONSTANT: _OnlyWith = {"schedule": tuple(name for name in SCHEDULES if name != "constant")}


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """The settings of a run. Two runs whose settings differ only in `FREE` fields have the same losses."""

    data: tuple[str, ...] = setting(
        (), "prepared datasets, local or gs://; several are mixed", free=True, section="Data"
    )
    # By default, the number of its records (Raffel 2020 §3.5.2)
    rates: tuple[float, ...] = setting((), "relative frequency of each dataset; empty: in proportion to its records")
    temperature: float = setting(  # Raffel 2020 §3.5.2: 2
        1.0,
        "above 1, datasets are drawn more equally: records^(1 / temperature)",
        minimum=0.05,  # records^(1 / temperature) is still a float
        bounds_note=": 1 is by records, 2 more equal",
    )
    cap: int = setting(  # seqio: maximum
        0, "maximum number of records that count for the frequency of a dataset; 0: all", minimum=0
    )
    buckets: tuple[str, ...] = setting(
        (), "lengths of batches, such as 128x16,512x64: a row is in the shortest that holds it"
    )
    split: str = setting("train", "split to train on")
    model: str = setting(
        "",
        "initial model: tiny, a Hugging Face directory, a Hub name, or a run",
        names="model_name_or_path",
        section="Model and output",
    )
    weights: str = setting(
        "pretrained", "initial weights: pretrained, or random to train from scratch", choices=("pretrained", "random")
    )
    out: str = setting("", "directory of the run, local or gs://", names="output_dir", free=True)
    tokenizer: str = setting("", "tokenizer, if the one named in the manifest cannot be found", free=True)

    batch: int = setting(  # Raffel 2020 §3.5; T5X finetune.gin
        128,
        "rows of a step, over all devices",
        minimum=1,
        names=dict.fromkeys(
            ("per_device_train_batch_size", "per_device_batch_size", "train_batch_size", "batch_size"), _ALL_DEVICES
        ),
        section="Batch and length",
    )
    steps: int = setting(
        0, "number of steps; 0: by epochs", minimum=0, names="max_steps train_steps num_train_steps total_steps"
    )
    epochs: float = setting(
        0.0,
        "number of passes over all records; 0: by steps",
        minimum=0,
        names="num_train_epochs num_epochs max_epochs",
    )
    accumulate: int = setting(
        1,
        "number of parts of a batch, computed one after the other to save memory",
        minimum=1,
        names=dict.fromkeys(("gradient_accumulation_steps", "grad_accum"), _ALL_DEVICES),
    )
    seed: int = setting(  # dropout's masks are drawn from an int32
        0, "random seed of the order of the data, of dropout and of random weights", minimum=0, below=2**31
    )

    lora: int = setting(  # at most as wide as the matrices themselves, or nearly
        0,
        "rank of the adapters to train (LoRA), such as 8; 0: train all weights",
        minimum=0,
        maximum=1024,
        bounds_note="; ranks of 4 to 64 are usual",
        section="Adapters (LoRA)",
    )
    lora_alpha: float = setting(
        16.0, "lora: the factor of adapters is lora_alpha / lora", above=0, only_with={"lora": ()}
    )

    optimizer: str = setting(  # Raffel 2020 §3.1.2
        "adafactor",
        "optimizer: adafactor, as T5 was trained, or adamw",
        choices=("adafactor", "adamw"),
        names="optim",
        synonyms=dict.fromkeys(("adam", "adamw_torch", "adamw_hf", "adamw_torch_fused"), "adamw"),
        section="Optimizer",
    )
    learning_rate: float = setting(  # constant, for fine-tuning (Raffel 2020 §3.5)
        1e-3,
        "highest learning rate; with adafactor, relative to the size of each weight",
        minimum=0,
        names="lr max_lr peak_lr",
    )
    schedule: str = setting(
        "constant",
        f"learning rate over time: {', '.join(SCHEDULES)}",
        choices=SCHEDULES,
        names="lr_scheduler_type lr_scheduler scheduler",
        synonyms={
            "constant_with_warmup": "warmup_constant",
            "warmupconstant": "warmup_constant",
            "warmuplinear": "linear",
            "warmup_linear": "linear",
            "constant_linear": "constantlinear",
            "rsqrt": "inverse_sqrt",
        },
    )
    warmup: float = setting(
        0.0,
        "number of steps in which the rate rises; below 1: a share of all steps",
        minimum=0,
        only_with=_NOT_CONSTANT,
        names={"warmup_steps": "", "num_warmup_steps": "", "warmup_ratio": "below 1 it is a share of all steps"},
    )
    power: float = setting(  # 1: transformers, get_polynomial_decay_schedule_with_warmup
        1.0, "polynomial: exponent of the decay; 1: a straight line, 2: a parabola", above=0, only_with=_POLYNOMIAL
    )
    end_rate: float = setting(
        0.0, "polynomial: learning rate at the end", minimum=0, only_with=_POLYNOMIAL, names="lr_end"
    )
    parameter_scale: bool = setting(  # relative to each weight's RMS (Shazeer & Stern 2018 §8)
        True, "adafactor: make the rate relative to the size of each weight", only_with=_ADAFACTOR
    )
    decay_rate: float = setting(  # 1 - step^-0.8 (Shazeer & Stern 2018 §7.2)
        0.8, "adafactor: decay of the second moment, as 1 - step ** -this", above=0, only_with=_ADAFACTOR
    )
    weight_decay: float = setting(  # T5X adafactor.py; recipes set AdamW's usual 0.01
        0.0, "adamw: factor by which weights shrink at each step; 0: no decay", minimum=0, only_with=_ADAMW
    )
    beta1: float = setting(
        0.9, "adamw: decay of the first moment", minimum=0, below=1, only_with=_ADAMW, names="adam_beta1"
    )
    beta2: float = setting(
        0.999, "adamw: decay of the second moment", minimum=0, below=1, only_with=_ADAMW, names="adam_beta2"
    )
    epsilon: float = setting(  # PyTorch
        1e-8, "adamw: added to the divisor, so that it is never 0", above=0, only_with=_ADAMW, names="adam_epsilon"
    )
    clip_norm: float = setting(  # none in T5X: Adafactor clips each update instead
        0.0,
        "maximum norm of the gradients over all weights; 0: no limit",
        minimum=0,
        names="max_grad_norm grad_clip gradient_clip_val",
    )

    # Raffel 2020 §3.1.2; v1.1 was pre-trained without and fine-tunes with it (its model card)
    dropout: float = setting(
        0.1,
        "share of activations to drop in training",
        minimum=0,
        below=1,
        names="dropout_rate",
        section="Loss and arithmetic",
    )
    label_smoothing: float = setting(  # T5X base.gin
        0.0,
        "share of probability that targets give to all other tokens",
        minimum=0,
        below=1,
        names="label_smoothing_factor",
    )
    z_loss: float = setting(  # T5X base.gin
        1e-4, "weight of the z-loss, which keeps the normalizer of the softmax near 1", minimum=0
    )
    dtype: str = setting(  # norms, softmax, logits, loss stay float32
        "auto",
        "dtype of matrix products: bfloat16, float32, or auto (float32 on a CPU, else bfloat16)",
        choices=("auto", "bfloat16", "float32"),
        names={
            "fp16": "float16 overflows in T5, bfloat16 does not",
            "bf16": "",
            "fp32": "",
            "mixed_precision": "",
            "precision": "",
        },
        synonyms={
            **dict.fromkeys(("bf16", "bf16-mixed", "fp16", "float16", "half", "16-mixed"), "bfloat16"),
            **dict.fromkeys(("fp32", "float", "32"), "float32"),
        },
    )
    shard: str = setting(
        "1", "number of devices that share one copy of the model; auto: as many as it needs", free=True
    )
    remat: bool = setting(
        False,
        "recompute activations in the backward pass: less memory, a third more work",
        names="gradient_checkpointing",
    )

    eval_split: str = setting("validation", "split to evaluate", free=True, of_scores=True, section="Evaluation")
    eval_every: int = setting(
        0,
        "number of steps between evaluations; 0: one epoch",
        minimum=0,
        names={
            **dict.fromkeys(("eval_steps", "eval_period"), "it counts steps"),
            **dict.fromkeys(("evaluation_strategy", "eval_strategy"), "it counts steps, and 0 is once an epoch"),
        },
        free=True,
    )
    eval_batch: int = setting(
        0,
        "rows of an evaluation batch; 0: the same as batch",
        minimum=0,
        names=dict.fromkeys(("per_device_eval_batch_size", "eval_batch_size"), "it counts the rows over all devices"),
        free=True,
        of_evaluation=True,
    )
    eval_rows: int = setting(
        0,
        "number of records to evaluate, from the first of the split; 0: all",
        minimum=0,
        names="max_eval_samples",
        free=True,
        of_evaluation=True,
        of_scores=True,
    )
    metric: str = setting(
        "auto",
        "metric of the best checkpoint; auto: accuracy of classes, f1 of tags, micro_f1 of labels, else loss",
        choices=("auto", *NUMBERS),
        names="metric_for_best_model",
        free=True,
        of_evaluation=True,
        of_scores=True,
    )
    patience: int = setting(
        0,
        "number of evaluations without a better metric before the run stops; 0: no limit",
        minimum=0,
        names="early_stopping_patience",
        free=True,
        of_evaluation=True,
    )
    generate: bool = setting(
        False,
        "generate answers at each evaluation, for the metrics of the task",
        names="predict_with_generate",
        free=True,
        of_evaluation=True,
        of_scores=True,
    )
    beams: int = setting(
        1,
        "generate: beam width; 1: greedy",
        minimum=1,
        only_with={"generate": (True,)},
        names="num_beams generation_num_beams",
        free=True,
        of_scores=True,
    )

    save_every: int = setting(
        0,
        "number of steps between checkpoints; 0: one at each evaluation",
        minimum=0,
        names={
            **dict.fromkeys(("save_steps", "save_period"), "it counts steps"),
            "save_strategy": "it counts steps, and 0 is with each evaluation",
        },
        free=True,
        section="Checkpoints and logs",
    )
    keep: int = setting(  # wangcongcong123/ttt: keep_ck_num 3
        3,
        "number of last checkpoints to keep, besides the best one",
        minimum=1,
        names="save_total_limit keep_ck_num",
        free=True,
    )
    push: str = setting(
        "",
        "Hub repository OWNER/NAME: push each checkpoint with its logs, as one commit",
        names="hub_model_id push_to_hub",
        free=True,
    )
    log_every: int = setting(
        10,
        "number of steps between lines of metrics.jsonl",
        minimum=1,
        names={"logging_steps": "it counts steps"},
        free=True,
    )
    tensorboard: bool = setting(True, "also write curves for TensorBoard", names="report_to", free=True)


FIELDS = {field.name: field for field in dataclasses.fields(TrainConfig)}


def _select_fields(mark: str) -> tuple[str, ...]:
    """Return the names of the settings whose field has the `mark`, such as "free"."""
    return tuple(name for name, field in FIELDS.items() if field.metadata[mark])


FREE = frozenset(_select_fields("free"))
OF_EVALUATION, OF_SCORES = _select_fields("of_evaluation"), _select_fields("of_scores")
# The name of a setting in another trainer → our name.
OTHER_NAMES = {theirs: name for name, field in FIELDS.items() for theirs in field.metadata["names"]}
_LENGTH = {"steps", "epochs"}
_PRECISION = {"fp16": ("bfloat16", "float32"), "bf16": ("bfloat16", "float32"), "fp32": ("float32", "bfloat16")}

# Limits for a recipe from a stranger. Hundreds of datasets, one a line, fit into the bytes.
MOST_RECIPE_BYTES = 128 << 10
MOST_DOTS = 500  # in a line


def recipes() -> dict[str, str]:
    """Return the first comment line of every built-in recipe, by its name."""
    texts = _built_in()
    return {name: texts[name].splitlines()[0].lstrip("# ") for name in sorted(texts)}


def _built_in() -> dict[str, str]:
    """Return the text of every built-in recipe, by its name."""
    files = importlib.resources.files("t5prep.training.settings").joinpath("recipes").iterdir()
    return {file.name.removesuffix(".toml"): file.read_text(encoding="utf-8") for file in files}


def read_recipe(name: str) -> JSONObject:
    """Return the values of a built-in recipe, or of a TOML file. Raises UsageError."""
    if name.endswith(".toml"):
        try:
            with paths.opened(name) as file:
                content = file.read(MOST_RECIPE_BYTES + 1)
            text = content[:MOST_RECIPE_BYTES].decode("utf-8-sig")  # with or without a byte order mark
        except OSError as error:
            raise UsageError(
                f"The recipe {name} cannot be read ({error.strerror}).", code="recipe.unreadable"
            ) from error
        except UnicodeDecodeError as error:
            raise UsageError(
                f"The recipe {name} is not text in UTF-8 ({error.reason}). Save it as UTF-8.",
                code="recipe.invalid-toml",
            ) from error
        # The memory of a TOML parser grows with the square of the number of a key's parts.
        if len(content) > MOST_RECIPE_BYTES or any(line.count(".") > MOST_DOTS for line in text.splitlines()):
            raise UsageError(
                f"The recipe {name} is not a list of settings: it has more than {MOST_RECIPE_BYTES:,} bytes, "
                f"or a line with more than {MOST_DOTS} dots. Name another file.",
                code="recipe.invalid-toml",
            )
    elif name in recipes():
        text = _built_in()[name]
    else:
        raise UsageError(
            f'No recipe is named "{name}".{did_you_mean(name, recipes())} Choose one of: '
            f"{', '.join(recipes())}, or a file that ends in .toml.",
            code="recipe.unknown",
        )
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: a number of more digits than Python reads
        raise UsageError(f"The recipe {name} is not TOML: {error}.", code="recipe.invalid-toml") from error


def read_settings(settings: typing.Iterable[str]) -> dict[str, str]:
    """Return `["batch=32"]` as `{"batch": "32"}`. Raises UsageError if there is no `=`."""
    pairs = [setting.partition("=") for setting in settings]
    for key, equals, _ in pairs:
        if not equals:
            raise UsageError(
                f'--set {key} has no value. Write --set {key}=VALUE, for example "--set batch=32".',
                code="setting.missing-value",
            )
    return {key.strip().replace("-", "_"): value.strip() for key, _, value in pairs}


def build(*sources: JSONObject) -> TrainConfig:
    """Return a configuration from `sources` of values, each of which overrides the earlier ones. Texts become the field's type.

    If a later value makes an earlier one ineffective, such as another optimizer, the earlier one is dropped.

    >>> build({"batch": 64}, {"batch": "32", "data": "a,b"}).batch
    32
    >>> build({"epochs": 4}, {"steps": 100}).epochs
    0.0

    Raises UsageError for an unknown key (and names the closest one), a value of a wrong type, an impossible value, or one that
    has no effect.
    """
    field_types = typing.get_type_hints(TrainConfig)
    values: dict[str, Any] = {}
    for source in sources:
        # `steps` and `epochs` exclude each other: if this source sets one of them, the other is dropped.
        if len(superseded_keys := _LENGTH - source.keys()) == 1:
            values.pop(superseded_keys.pop(), None)
        read: dict[str, object] = {}
        for key, value in source.items():
            if key not in field_types:
                raise UsageError(
                    _name_here(key, value)
                    or f'No setting is named "{key}".{did_you_mean(key, field_types)} List all settings: t5prep train --settings',
                    code="setting.unknown",
                )
            read[key] = _read(key, value, field_types[key])
        values = _without_ineffective(values, read) | read
    config = TrainConfig(**values)
    _check(config)
    _check_effect(config)
    return config


def _read(key: str, value: JSON, kind: type) -> object:
    """Return `value` of the setting `key`, which comes from TOML, JSON or the command line, as type `kind`.

    Unlike `fields.typed`, whose values have types already, it reads the texts of `--set`. Raises UsageError if that is not
    possible.
    """
    try:
        if isinstance(kind, types.GenericAlias):  # tuple[str, ...] or tuple[float, ...]
            parts = [part for part in value.split(",") if part] if isinstance(value, str) else value
            values = tuple(kind.__args__[0](part) for part in parts)
            if not all(math.isfinite(part) for part in values if isinstance(part, float)):
                raise ValueError(value)
            return values
        if not isinstance(value, str | int | float) or (isinstance(value, str) and "\0" in value):
            raise ValueError(value)
        if kind is bool and isinstance(value, str):
            return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[value.lower()]
        if kind is int and not isinstance(value, int):
            if float(value) != int(float(value)):
                raise ValueError(value)
            value = int(float(value))
        if isinstance(value, bool) != (kind is bool) or (kind is int and abs(int(value)) >= 1 << 63):
            raise ValueError(value)
        if kind is float and not math.isfinite(float(value)):
            raise ValueError(value)
        return kind(value)
    except (ValueError, KeyError, TypeError, OverflowError):
        type_name = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}.get(kind, "a list")
        # Python prints no number of more than 4,300 digits, which TOML reads in hexadecimal.
        shown = "a very large number" if isinstance(value, int) and abs(value) >> 128 else f"{value!r:.60}"
        raise UsageError(f"{key} is {shown}, but must be {type_name}.", code="setting.malformed") from None


def _check(config: TrainConfig) -> None:
    """Raise UsageError for a value that is not possible, by itself or together with another one."""
    check(config, _SETTING)
    if config.shard != "auto" and not whole_number(config.shard):
        raise UsageError(
            f'shard does not accept "{config.shard:.60}". Use auto or a number of devices, for example --set shard=4',
            code="setting.malformed",
        )
    if config.end_rate > config.learning_rate:
        raise UsageError(
            f"end_rate is {config.end_rate}, but must not exceed the learning_rate of "
            f"{config.learning_rate}. Lower end_rate.",
            code="setting.out-of-range",
        )
    if config.batch % config.accumulate:
        raise UsageError(
            f"A batch of {config.batch} cannot be divided into {config.accumulate} equal parts. Set "
            "accumulate to a divisor of batch.",
            code="device.indivisible-batch",
        )
    parse_buckets(config.buckets)
    if config.rates and len(config.rates) != len(config.data):
        raise UsageError(
            f"{len(config.rates)} rates are set for {len(config.data)} datasets. Set one rate for each dataset.",
            code="setting.invalid-rates",
        )
    if config.rates and min(config.rates) <= 0:
        raise UsageError(
            f"rates are {', '.join(map(str, config.rates))}, but each rate must be above 0.",
            code="setting.invalid-rates",
        )
    if config.steps and config.epochs:
        raise UsageError("Both steps and epochs are set. Set one of them to 0.", code="setting.conflict")


def _without_ineffective(values: Mapping[str, Any], changed: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` without those that the values `changed` make ineffective.

    For example, AdamW's settings are dropped if a recipe for AdamW is run with Adafactor.
    """
    return {
        key: value
        for key, value in values.items()
        if not any(by in changed for by in FIELDS[key].metadata["only_with"])
        or has_effect(FIELDS[key], TrainConfig(**changed))
    }


def _check_effect(config: TrainConfig) -> None:
    """Raise UsageError for a value that differs from the default and has no effect with the other settings."""
    check_effect(config, _SETTING)
    chosen = find_changed(config)
    for key in ("rates", "temperature", "cap"):
        if key in chosen and len(config.data) == 1:
            value = ", ".join(map(str, config.rates)) if key == "rates" else getattr(config, key)
            raise UsageError(
                f"{key} is {value}, but has no effect with a single dataset. Remove {key}.", code="setting.inapplicable"
            )
        if key in chosen and key != "rates" and config.rates:
            raise UsageError(
                f"{key} is {getattr(config, key)}, but has no effect with rates=…. Use either {key} or rates, "
                "not both.",
                code="setting.inapplicable",
            )


def find_changed(config: TrainConfig) -> list[str]:
    """Return the settings that differ from their defaults."""
    return [name for name, field in FIELDS.items() if getattr(config, name) != field.default]


def _name_here(key: str, value: object) -> str:
    """Return a message with our name and value for the setting `key` of another trainer; "" if it is not known.

    >>> _name_here("lr", "1e-4")
    'No setting is named "lr". Here it is called learning_rate. Write --set learning_rate=1e-4'
    """
    key = key.lower()
    if key not in OTHER_NAMES:
        return ""
    ours = OTHER_NAMES[key]
    note = FIELDS[ours].metadata["names"][key]
    message = f'No setting is named "{key}". Here it is called {ours}' + (f" ({note})" if note else "")
    text = str(value).strip()
    on = text.lower() in ("true", "1", "yes", "on")
    if key in _PRECISION:
        moved = _PRECISION[key][0 if on else 1]
    elif ours in ("remat", "generate"):
        moved = "true" if on else "false"
    elif key.endswith("strategy"):
        moved = "0" if text in ("epoch", "steps") else "N"
    else:
        moved = _value_here(ours, text) or text
    return f"{message}. Write --set {ours}={moved}"


def _value_here(key: str, value: str) -> str:
    """Return our value for another trainer's `value` of our setting `key`; "" if there is none.

    >>> _value_here("schedule", "warmuplinear"), _value_here("schedule", "linear")
    ('linear', '')
    """
    return str(FIELDS[key].metadata["synonyms"].get(value.lower(), ""))


def parse_buckets(texts: Sequence[str]) -> list[Lengths]:
    """Return the (input, target) lengths of buckets from `texts`, the shortest first. Raises UsageError.

    >>> parse_buckets(["512x64", "128x16"])
    [(128, 16), (512, 64)]
    """
    for text in texts:
        if not re.fullmatch(r"[1-9]\d*x[1-9]\d*", text):
            raise UsageError(
                f'buckets contains "{text}", which is not a size. Write each bucket as INPUTxTARGET tokens: '
                "--set buckets=128x16,512x64",
                code="setting.malformed",
            )
    return sorted({(int(inputs), int(targets)) for inputs, _, targets in (text.partition("x") for text in texts)})


def dumps(config: TrainConfig) -> str:
    """Return the configuration as JSON text, for the run's directory."""
    return json.dumps(dataclasses.asdict(config), indent=2) + "\n"


def differing(ours: TrainConfig, theirs: JSONObject) -> dict[str, tuple[JSON, JSON]]:
    """Return the fields that differ between `ours` and the stored `theirs`, as field → (stored, now).

    Fields without an effect on the losses are left out. A field that `theirs` lacks was added to t5prep later, so it counts as
    its default.
    """
    current_values = json.loads(dumps(ours))
    stored_values = json.loads(dumps(TrainConfig())) | dict(theirs)
    free = FREE | _LENGTH  # `checks.describe_new_length` compares the length
    return {
        key: (stored_values[key], value)
        for key, value in current_values.items()
        if key not in free and stored_values[key] != value
    }
