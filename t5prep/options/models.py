"""Define the options of the commands that use a model: `plan`, `eval`, `predict`, `embed` and `export`."""

import dataclasses
from collections.abc import Mapping

from t5prep.errors import UsageError
from t5prep.json_values import JSON
from t5prep.options.fields import Options, changed, group, option, option_of
from t5prep.options.files import RowFileOptions
from t5prep.options.generation import Generation


@dataclasses.dataclass(frozen=True)
class ModelOptions(Options):
    """Hold the options of opening a model: the checkpoint of a run, the tokenizer, and the devices."""

    checkpoint: str = option("best", "checkpoint of a run: best, last, or the number of a step")
    tokenizer: str = option("", "tokenizer, if the one named in the manifest cannot be found", is_address=True)
    tpu: str | None = option(
        None, "run on the TPU of this machine and of its slice", bare_value="auto", metavar="[local]"
    )
    gpus: bool = option(False, "run on all GPUs of this machine")


@dataclasses.dataclass(frozen=True)
class RowOptions(Options):
    """Hold the options of reading rows for a model. The defaults of `files` are those of the data that it was trained on."""

    as_text: bool = option(False, "read lines, or a column `input`, as complete inputs with their prefix")
    task: str = option("", "task of the rows, for a run on several tasks")
    split: str = option("", "split to read, if the files are splits; all reads every file [default: all]")
    files: RowFileOptions = group(RowFileOptions)
    limit: int | None = option(None, "maximum number of rows", minimum=1)
    trust_code: bool = option(
        False,
        "execute the Python file of a task that came with the model or the data. Read the file first",
    )

    def identity(self) -> dict[str, JSON]:
        """Return the options that decide which rows are read: all but `trust_code`."""
        return {name: value for name, value in dataclasses.asdict(self).items() if name != "trust_code"}


@dataclasses.dataclass(frozen=True)
class SourceOptions(Options):
    """Hold the options of opening a dataset, and of reading its source again: of `why`, `table` and `explore`."""

    source: str = option(
        "", "current location of the source, if it was moved or you never read from its address", is_address=True
    )
    tokenizer: str = option_of(ModelOptions, "tokenizer")
    trust_code: bool = option_of(RowOptions, "trust_code")


@dataclasses.dataclass(frozen=True)
class PlanOptions(Options):
    """Hold the options of `t5prep plan`, and of `t5prep.plan`, `plan_sweep` and `plan_lengths`."""

    model: str = option(
        "",
        "published model (t5-large, bert-base-uncased, ...) or a directory with config.json",
        is_address=True,
    )
    data: str | None = option(None, "prepared dataset, which gives lengths, layout and rows", is_address=True)
    split: str = option("train", "split of --data whose rows make an epoch", only_with={"data": ()})
    input_length: int | None = option(None, "input length in tokens [default: the dataset's, or 512]", minimum=1)
    target_length: int | None = option(None, "target length in tokens [default: the dataset's, or 64]", minimum=1)
    batch: tuple[int, ...] = option((), "rows of a step, over all devices", minimum=1)
    tpu: tuple[str, ...] = option((), "TPU type: v2-8, v3-8, v5e-4, v6e-8, ... [default: v5e-8]")
    recipe: str | None = option(None, "recipe of `t5prep train`")
    settings: Mapping[str, JSON] | None = option(
        None, "single settings over the recipe's, such as `{'remat': True}`", python_only=True
    )
    packed: bool = option(False, "plan packed rows, with several examples each")
    embed: bool = option(False, "plan `t5prep embed`, the encoder alone, instead of training")
    price: float | None = option(
        None, "with --data: price of one chip for an hour, in any currency", minimum=0, only_with={"data": ()}
    )
    save: str = option(
        "",
        "save the compiled step for `train --out RUN`; a TPU VM reads it from gs://",
        metavar="RUN",
        is_address=True,
    )
    largest: bool = option(False, "also search for the largest batch that fits")
    exact: bool = option(False, "compile all layers instead of extrapolating from a few")
    quick: bool = option(False, "do not search for settings that fit")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.embed and (training := changed(self, "save", "largest", "quick")):
            raise UsageError(
                f"--embed plans no training, so {' and '.join(training)} cannot apply. Remove "
                f"{' and '.join(training)}.",
                code="option.inapplicable",
            )


@dataclasses.dataclass(frozen=True)
class TrainOptions(Options):
    """Hold the options of `t5prep train` and `t5prep.train`."""

    out: str = option(help="directory of the run, local or gs://; an existing run is resumed", is_address=True)
    data: tuple[str, ...] = option(
        (), "prepared dataset, local or gs://; repeat to mix several", metavar="DIR", is_address=True
    )
    model: str | None = option(
        None,
        "initial weights: a Hugging Face directory, a Hub name, or a run (its best checkpoint)",
        is_address=True,
    )
    recipe: str | None = option(None, "recipe by its name (see --settings), or a TOML file")
    settings: Mapping[str, JSON] | None = option(
        None, "single settings over the recipe's, such as `{'epochs': 2, 'batch': 64}`", python_only=True
    )
    tokenizer: str = option_of(ModelOptions, "tokenizer")
    tpu: str | None = option_of(ModelOptions, "tpu")
    gpus: bool = option_of(ModelOptions, "gpus")
    profile: int = option(
        0, "number of steps to profile for TensorBoard, after the first ones", minimum=0, metavar="STEPS"
    )
    replicas: int = option(1, "number of logical CPU devices, for tests", minimum=1)


@dataclasses.dataclass(frozen=True)
class EvaluateOptions(Options):
    """Hold the options of `t5prep eval` and `t5prep.evaluate`."""

    data: tuple[str, ...] = option(
        (), "prepared dataset; repeat for several [default: the run's datasets]", is_address=True
    )
    split: tuple[str, ...] = option(("validation",), "split to score; repeat for several")
    batch: int = option(32, "batch size in rows", minimum=1)
    limit: int = option(0, "maximum number of records to score; 0: all", minimum=0)
    generation: Generation = group(Generation, without=("answers", "scores"))
    metric: tuple[str, ...] = option((), "metric; repeat for several [default: the task's]")
    bootstrap: bool = option(False, "add 95 % confidence intervals to ROUGE")
    dtype: str = option("auto", "dtype of matrix products", choices=("auto", "float32", "bfloat16"))
    worst: int = option(
        20, "how many wrong answers to return, those with the highest losses", minimum=0, python_only=True
    )
    random_wrong: int = option(
        4,
        "how many more wrong answers to return of each class (of all, without classes), drawn at random",
        minimum=0,
        python_only=True,
    )
    model: ModelOptions = group(ModelOptions)


@dataclasses.dataclass(frozen=True)
class PredictOptions(Options):
    """Hold the options of `t5prep predict` and `t5prep.predict`.

    Without `long`, long inputs of word-aligned tasks are split, and those of all other tasks are cut.
    """

    rows: RowOptions = group(RowOptions)
    long: str | None = option(
        None,
        (
            "how to handle inputs that exceed the length: cut them, split them into parts, or refuse them [default: "
            "split word-aligned tasks, cut all others]"
        ),
        choices=("cut", "split", "refuse"),
    )
    batch: int = option(16, "batch size in rows", minimum=1)
    generation: Generation = group(Generation)
    model: ModelOptions = group(ModelOptions)


@dataclasses.dataclass(frozen=True)
class VectorOptions(Options):
    """Hold the options that decide the vectors of a text."""

    pooling: str = option(
        "auto",
        "pooling of the token vectors: none, mean, or first token. auto: the model's modules.json, or none",
        choices=("auto", "none", "mean", "first"),
    )
    normalize: bool = option(False, "scale each vector to length 1", only_with={"pooling": ("auto", "mean", "first")})
    dtype: str = option(
        "bfloat16",
        "dtype of the vectors, and of products if the device supports it",
        choices=("bfloat16", "float32"),
    )
    padded: bool = option(
        False,
        "pad texts to --length, and store the vectors of padding with a mask",
        only_with={"pooling": ("auto", "none")},
    )


@dataclasses.dataclass(frozen=True)
class EmbedOptions(Options):
    """Hold the options of `t5prep embed` and `t5prep.embed`."""

    column: str = option("", "column with the texts [default: the column of the run's task, or input]")
    vectors: VectorOptions = group(VectorOptions)
    length: int = option(0, "maximum text length in tokens [default: the run's, the model's, or 512]", minimum=0)
    batch: int = option(16, "batch size in rows", minimum=1)
    shard_rows: int = option(0, "rows of each output file [default: 1024, or 16384 with pooling]", minimum=0)
    rows: RowOptions = group(RowOptions, without=("as_text",))
    replicas: int = option(1, "logical CPU devices, for tests", minimum=1, python_only=True)
    model: ModelOptions = group(ModelOptions)


_HF, _SAVEDMODEL = {"format": ("hf",)}, {"format": ("savedmodel",)}


@dataclasses.dataclass(frozen=True)
class ExportOptions(Options):
    """Hold the options of `t5prep export`."""

    format: str = option("hf", "output format: hf for PyTorch, savedmodel for TensorFlow", choices=("hf", "savedmodel"))
    checkpoint: str = option_of(ModelOptions, "checkpoint")
    beams: int = option(1, "beam width of a SavedModel", minimum=1, only_with=_SAVEDMODEL)
    dtype: str = option(
        "float32",
        "dtype of the weights in a Hugging Face directory",
        choices=("float32", "bfloat16", "float16"),
        only_with=_HF,
    )
    merge: bool = option(False, "merge LoRA adapters into the model instead of writing peft adapters", only_with=_HF)
    license: str = option("", "licence of the model by its Hub name: apache-2.0", only_with=_HF)
    text: bool = option(False, "SavedModel that takes and returns texts, by tensorflow_text", only_with=_SAVEDMODEL)
