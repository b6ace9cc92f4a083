"""Define each option of the commands that use a model: `plan`, `eval`, `predict`, `embed` and `export`."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from t5prep.errors import UsageError
from t5prep.options.fields import Options, changed, group, option
from t5prep.options.files import RowFileOptions
from t5prep.options.generation import Generation


@dataclasses.dataclass(frozen=True)
class ModelOptions(Options):
    """The options of opening a model: which checkpoint of a run, its tokenizer, and the devices that it runs on."""

    checkpoint: str = option("best", "of a run: best, last, or a step's number")
    tokenizer: str = option("", "the tokenizer, if the one that the manifest names cannot be found", is_address=True)
    tpu: str | None = option(
        None, "on the TPU of this machine, and of all others of its slice", alone="auto", metavar="[local]"
    )
    gpus: bool = option(False, "on all GPUs of this machine")


@dataclasses.dataclass(frozen=True)
class RowOptions(Options):
    """The options of reading rows for a model. What is left out of `files` is as the model's data had it."""

    as_text: bool = option(False, "lines (or a column `input`) are whole inputs, prefix and all")
    task: str = option("", "of a run on several tasks: which one the rows are for")
    split: str = option("", "of a source whose files are splits; all reads every file [default: all]")
    files: RowFileOptions = group(RowFileOptions)
    limit: int | None = option(None, "take only this many rows", least=1)
    trust_code: bool = option(
        False,
        "execute the Python file of a task that came with the model or the data, though you have never run it: read it first",
    )

    def identity(self) -> dict[str, Any]:
        """Return the options that decide which rows there are."""
        return {name: value for name, value in dataclasses.asdict(self).items() if name != "trust_code"}


@dataclasses.dataclass(frozen=True)
class PlanOptions(Options):
    """The options of `t5prep plan`, and of `t5prep.plan`, `plan_sweep` and `plan_lengths`."""

    model: str = option(
        "",
        "a published T5 or encoder (t5-large, bert-base-uncased, ...) or a directory with config.json",
        is_address=True,
    )
    data: str | None = option(None, "a prepared dataset: its lengths, layout and rows", is_address=True)
    split: str = option("train", "whose rows make an epoch")
    input_length: int | None = option(None, "instead of the dataset's (or 512)", least=1)
    target_length: int | None = option(None, "instead of the dataset's (or 64)", least=1)
    batch: tuple[int, ...] = option((), "rows a step, over all devices", least=1)
    tpu: tuple[str, ...] = option((), "type of TPU: v2-8, v3-8, v5e-4, v6e-8, ... [default: v5e-8]")
    recipe: str | None = option(None, "a recipe of `t5prep train`")
    settings: Mapping[str, Any] | None = option(
        None, "single settings over the recipe's, such as `{'remat': True}`", python_only=True
    )
    packed: bool = option(False, "rows hold several examples each")
    embed: bool = option(False, "what `t5prep embed` runs, instead of a training: the encoder alone")
    price: float | None = option(None, "what one chip costs for an hour, in any currency", least=0)
    save: str = option(
        "",
        "keep the executable for `train --out RUN`, on gs:// for a TPU VM to take",
        metavar="RUN",
        is_address=True,
    )
    largest: bool = option(False, "look for the largest batch that fits, too")
    exact: bool = option(False, "compile all layers, instead of extending the time of a few")
    quick: bool = option(False, "no advice where it does not fit")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.embed and (training := changed(self, "save", "largest")):
            raise UsageError(f"--embed is no training: leave {' and '.join(training)} out.")


@dataclasses.dataclass(frozen=True)
class EvaluateOptions(Options):
    """The options of `t5prep eval` and `t5prep.evaluate`."""

    data: tuple[str, ...] = option(
        (), "a prepared dataset, or several; of a run, all that it was trained on", is_address=True
    )
    split: tuple[str, ...] = option(("validation",), "a split, or several: every record is scored, once")
    batch: int = option(32, "rows at a time", least=1)
    limit: int = option(0, "score only this many records; 0: all", least=0)
    generation: Generation = group(Generation, without=("answers", "scores"))
    metric: tuple[str, ...] = option((), "compute this metric, or several, in place of the task's")
    bootstrap: bool = option(False, "add 95 % intervals to ROUGE")
    dtype: str = option("auto", "of matrix products", choices=("auto", "float32", "bfloat16"))
    worst: int = option(
        20, "how many wrong answers to return, those with the highest losses", least=0, python_only=True
    )
    random_wrong: int = option(
        4,
        "how many more wrong answers to return of each class (of all, without classes), drawn at random",
        least=0,
        python_only=True,
    )
    model: ModelOptions = group(ModelOptions)


@dataclasses.dataclass(frozen=True)
class PredictOptions(Options):
    """The options of `t5prep predict` and `t5prep.predict`. Without `long`, inputs are cut or split as suits the task."""

    rows: RowOptions = group(RowOptions)
    long: str | None = option(
        None,
        "inputs that do not fit: cut as in training, answered part by part, or left out [default: as suits the task]",
        choices=("cut", "split", "refuse"),
    )
    batch: int = option(16, "rows at a time", least=1)
    generation: Generation = group(Generation)
    model: ModelOptions = group(ModelOptions)


@dataclasses.dataclass(frozen=True)
class VectorOptions(Options):
    """The options that decide which vectors a text has. Raises UsageError for choices that do not go together."""

    pooling: str = option(
        "auto",
        "a vector for each token, or one a text: the mean, or the first token's. auto: as the model's modules.json says, or "
        "none",
        choices=("auto", "none", "mean", "first"),
    )
    normalize: bool = option(False, "divide the vector of a text by its length")
    dtype: str = option(
        "bfloat16",
        "of the vectors; of products too, where the device has them",
        choices=("bfloat16", "float32"),
    )
    padded: bool = option(False, "pad texts to --length, and keep the vectors of padding, with a mask")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.normalize and self.pooling == "none":
            raise UsageError("--normalize is for one vector a text: say which, --pooling mean (or first).")
        if self.padded and self.pooling not in ("none", "auto"):
            raise UsageError(
                f"--padded keeps the vectors of padding, and --pooling {self.pooling} makes one of a text."
            )


@dataclasses.dataclass(frozen=True)
class EmbedOptions(Options):
    """The options of `t5prep embed` and `t5prep.embed`."""

    column: str = option("", "the column with the texts [default: as the run's task reads, or input]")
    vectors: VectorOptions = group(VectorOptions)
    length: int = option(0, "the most tokens of a text [default: the run's, the model's own, or 512]", least=0)
    batch: int = option(16, "rows at a time", least=1)
    shard_rows: int = option(0, "rows of a file [default: 1024; with --pooling mean or first 16384]", least=0)
    rows: RowOptions = group(RowOptions, without=("as_text",))
    replicas: int = option(1, "logical CPU devices, for tests", least=1, python_only=True)
    model: ModelOptions = group(ModelOptions)


# The options of `t5prep export` that only one format has.
_HF_ONLY, _SAVEDMODEL_ONLY = ("dtype", "merge", "license"), ("beams", "text")


@dataclasses.dataclass(frozen=True)
class ExportOptions(Options):
    """The options of `t5prep export`. Raises UsageError for an option that the format lacks."""

    format: str = option("hf", "for PyTorch, or for TensorFlow", choices=("hf", "savedmodel"))
    checkpoint: str = option("best", "of a run: best, last, or a step's number")
    beams: int = option(1, "of a SavedModel's search", least=1)
    dtype: str = option(
        "float32",
        "of a Hugging Face directory's weights, which are rounded to it",
        choices=("float32", "bfloat16", "float16"),
    )
    merge: bool = option(False, "of a run with adapters (LoRA): a whole model instead of peft's adapters")
    license: str = option("", "the model's licence as the Hub names it, such as apache-2.0")
    text: bool = option(False, "of a SavedModel: texts in and out, by tensorflow_text's SentencePiece")

    def __post_init__(self) -> None:
        super().__post_init__()
        other, without = ("savedmodel", _SAVEDMODEL_ONLY) if self.format == "hf" else ("hf", _HF_ONLY)
        for lacking in changed(self, *without):
            raise UsageError(f"{lacking} is for --format {other}: add that, or leave {lacking} out.")
