"""Define the public functions of training with plain arguments: `t5prep.train`, `t5prep.evaluate`, `t5prep.predict`."""

import contextlib
import dataclasses
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from t5prep.reading.file_options import FileOptions
from t5prep.sources import memory
from t5prep.training import need_tensorflow
from t5prep.training.predict.rows import INPUT, STDIN, Reading
from t5prep.training.settings import config as configs
from t5prep.training.settings.config import TrainConfig

if TYPE_CHECKING:
    from t5prep.training.embed.embedding import Embedded
    from t5prep.training.evaluate.evaluator import Wrong
    from t5prep.training.predict.predictions import Predictions
    from t5prep.training.trainer import Result


@dataclasses.dataclass(frozen=True)
class Scores:
    """The result of `t5prep.evaluate`: the scores of a checkpoint on a split.

    `checkpoint` is the one that was scored. `metrics` holds numbers by name (`loss`, `accuracy`, the task's own); for a
    task with classes also `labels` and `confusion`. `predictions` has a dict for each record (`id`, `prediction`,
    `references`, `scores`), `worst` the wrong answers with the highest losses, and `sample` a random sample of the wrong
    answers to each class. Of several splits or datasets, `metrics` are the means, and `each` holds the scores of each one;
    the rest is theirs.
    """

    checkpoint: str
    metrics: dict[str, Any]
    predictions: list[dict[str, Any]]
    worst: list["Wrong"]
    sample: list["Wrong"] = dataclasses.field(default_factory=list)
    data: str = ""
    split: str = ""
    each: list["Scores"] = dataclasses.field(default_factory=list)

    def to_json(self, *, scores: bool = False) -> dict[str, Any]:
        """Return what `t5prep eval --json` prints. `scores`: with those of each prediction."""
        whole = {"checkpoint": self.checkpoint}
        if self.each:
            return {**whole, "metrics": self.metrics, "evaluations": [one._own(scores) for one in self.each]}
        return {**whole, **self._own(scores)}

    def _own(self, scores: bool) -> dict[str, Any]:
        """Return one split's part of the JSON."""
        left_out = () if scores else ("scores",)
        return {
            "data": self.data,
            "split": self.split,
            "metrics": self.metrics,
            "predictions": [
                {name: value for name, value in one.items() if name not in left_out} for one in self.predictions
            ],
            "worst": [dataclasses.asdict(one) for one in self.worst],
            "sample": [dataclasses.asdict(one) for one in self.sample],
        }


def configuration(
    *,
    data: str | Sequence[str],
    out: str,
    model: str | None = None,
    recipe: str | None = None,
    tokenizer: str = "",
    settings: Mapping[str, Any] | None = None,
) -> TrainConfig:
    """Return the settings of a run: `settings` override the arguments, which override the recipe. Raises UsageError."""
    places = (data,) if isinstance(data, str) else tuple(data)
    given = {"data": places, "out": out, "model": model, "tokenizer": tokenizer}
    return configs.build(
        configs.read_recipe(recipe) if recipe else {},
        {key: value for key, value in given.items() if value},
        settings or {},
    )


def train(
    *,
    data: str | Sequence[str],
    out: str,
    model: str | None = None,
    recipe: str | None = None,
    tokenizer: str = "",
    settings: Mapping[str, Any] | None = None,
    tpu: str | None = None,
    gpus: bool = False,
    replicas: int = 1,
    profile: int = 0,
) -> "Result":
    """Train a T5 on prepared data, or an encoder on data with classes, or resume the run that is in `out`.

    The same call resumes a stopped run at its next step, with the same losses as a run that was never stopped.

    Args:
        data: A prepared dataset (a directory or gs:// prefix), or several, which are mixed.
        out: The run's directory, local or gs://: checkpoints, metrics, configuration, tokenizer.
        model: The source of the first weights: a Hugging Face directory or Hub name, or a run, whose best checkpoint is
            taken. May be left out where the recipe has one.
        recipe: Settings by name (`t5prep train --settings` lists them), or a TOML file.
        tokenizer: The tokenizer, where the one that the manifest names is no longer there.
        settings: Single settings that override the recipe's, such as `{"epochs": 2, "batch": 64}`: the fields of
            `t5prep.training.settings.config.TrainConfig`.
        tpu: On a TPU: its name, or "local" on a TPU VM.
        gpus: Whether to use all GPUs of this machine.
        replicas: Logical CPU devices, for tests.
        profile: Record a trace of this many steps in `out`/tensorboard, for TensorBoard's profiler.

    Returns:
        The run's directory, its number of steps, its best checkpoint, and that checkpoint's evaluation
        (`result.evaluation.metrics`), which is None for a dataset without the evaluation split.

    Raises:
        T5prepError: In one sentence: TensorFlow is missing, a setting cannot work, data and tokenizer do not fit, or a
            signal stopped the run (after saving).

    Example:
        result = t5prep.train(data="data/sample", out="runs/sample", recipe="tiny", settings={"steps": 4, "warmup": 2})
        print(result.steps, result.evaluation.metrics["accuracy"])
    """
    need_tensorflow()
    from t5prep.training import trainer

    config = configuration(data=data, out=out, model=model, recipe=recipe, tokenizer=tokenizer, settings=settings)
    return trainer.train(config, tpu=tpu, gpus=gpus, replicas=replicas, profile=profile)


def evaluate(
    model: str,
    *,
    data: str | Sequence[str] = (),
    split: str | Sequence[str] = "validation",
    checkpoint: str = "best",
    batch: int = 32,
    limit: int = 0,
    worst: int = 20,
    random_wrong: int = 4,
    metrics: str | Sequence[str] = (),
    tokenizer: str = "",
    bootstrap: bool = False,
    dtype: str = "auto",
    tpu: str | None = None,
    gpus: bool = False,
    **generation: Any,
) -> Scores:
    """Score a model on every record of a split, or of several splits and datasets, once.

    Args:
        model: A run, a Hugging Face directory, or a Hub name.
        data: A prepared dataset, or several; for a run it may be left out, and all that it was trained on are used.
        split: The split to score, or several.
        checkpoint: Of a run: "best", "last", or a step's number.
        batch: Rows in one batch, over all devices.
        limit: Score only this many records, the first ones; 0 is all.
        worst: How many wrong answers to return, those with the highest losses.
        random_wrong: How many more wrong answers to return of each class (of all, without classes), drawn at random.
        metrics: Names of metrics to compute in place of the task's, such as "rouge_ascii".
        tokenizer: The tokenizer, where the one that the manifest names is no longer there.
        bootstrap: Whether to add 95 % intervals to ROUGE.
        dtype: "float32" or "bfloat16" for matrix products; "auto" is float32 on a CPU.
        tpu: On a TPU: its name, or "local" on a TPU VM.
        gpus: Whether to use all GPUs of this machine.
        **generation: Options for generating answers of several tokens, such as `beams=4`: the fields of
            `t5prep.training.model.generation.Generation`.

    Returns:
        Scores: checkpoint, metrics, predictions, worst; of several splits or datasets also `each`.

    Raises:
        T5prepError: In one sentence: a model, dataset or split is missing, or they do not fit together.

    Example:
        scores = t5prep.evaluate("runs/sample", split="validation")
        print(scores.metrics["accuracy"], scores.worst[0].prediction)
    """
    need_tensorflow()
    from t5prep.training.evaluate import validation
    from t5prep.training.evaluate.splits import score_splits
    from t5prep.training.model.generation import Generation

    name, scored = score_splits(
        model,
        data=[data] if isinstance(data, str) else data,
        splits=[split] if isinstance(split, str) else split,
        which=checkpoint,
        tpu=tpu,
        gpus=gpus,
        batch=batch,
        limit=limit,
        tokenizer=tokenizer,
        bootstrap=bootstrap,
        worst=worst,
        random_wrong=random_wrong,
        metrics=[metrics] if isinstance(metrics, str) else metrics,
        dtype=dtype,
        generation=Generation(**generation),
    )
    each = [Scores(name, **vars(evaluation), data=place, split=split) for place, split, evaluation in scored]
    if len(each) == 1:
        return each[0]
    mean = validation.mean([evaluation.numbers() for *_, evaluation in scored])
    return Scores(name, mean, [], [], each=each)


def predict(
    model: str,
    rows: str | Path | BinaryIO | Iterable[str] | Iterable[Mapping[str, Any]],
    *,
    task: str = "",
    as_text: bool = False,
    format: str = "",
    encoding: str = "",
    delimiter: str = "",
    escape: str = "",
    column_names: str = "",
    records: str = "",
    limit: int | None = None,
    split: str = "",
    long: str = "",
    checkpoint: str = "best",
    batch: int = 16,
    tokenizer: str = "",
    trust_code: bool = False,
    tpu: str | None = None,
    gpus: bool = False,
    **generation: Any,
) -> "Predictions":
    """Answer rows with a trained model, one answer for each row, in order.

    Rows are answered while one iterates over what is returned, or calls its `write`, and nothing is kept of earlier
    answers: a source of any size fits.

    Args:
        model: A run, a Hugging Face directory, or a Hub name.
        rows: A source as `t5prep.prepare` reads it (a table with the columns of the model's task, without the target), an
            open binary file, the same rows as a DataFrame, an Arrow table, a dataset of the Hub's `datasets` or dicts, or
            texts, which are whole inputs and include the task's prefix. Filters that changed the training texts change
            all of these.
        task: For a model that was trained on several tasks: the task of these rows.
        as_text: Whether the lines of a source are used unchanged as inputs.
        format: "csv", "tsv", "jsonl", "parquet" or "text", where the source's name does not say it.
        encoding: Of text files; "" for that of the run's data.
        delimiter: Delimiter of the columns of CSV files; "" for that of the run's data.
        escape: Escape character of CSV files; "" for that of the run's data.
        column_names: Names of the columns of a table that does not begin with them, as "text,label".
        records: Where JSON documents have their rows, such as "data[].items[]".
        limit: Answer only this many rows.
        split: Of a source whose files are splits, the one to read; "" or "all" for every file.
        long: What to do with inputs that are too long: "cut" as in training, "split" into parts, or "refuse"; "" for
            what suits the task.
        checkpoint: Of a run: "best", "last", or a step's number.
        batch: Rows in one batch, over all devices.
        tokenizer: The tokenizer, to replace the model's own.
        trust_code: Whether to execute the Python file of a task that came with the model, though this user has never run
            it. What this user's own `prepare` ran is executed anyway.
        tpu: On a TPU: its name, or "local" on a TPU VM.
        gpus: Whether to use all GPUs of this machine.
        **generation: Options for generating answers, such as `beams=4` or `answers=3`: the fields of
            `t5prep.training.model.generation.Generation`.

    Returns:
        Predictions, which yields answers with `id`, `input` and `prediction`; for a row without an input, `prediction`
        is None and `reason` says why. Its `write("answers.csv")` writes them to a file that a killed run continues.

    Raises:
        T5prepError: In one sentence: a model, source or column is missing, or options of generation contradict each
            other.

    Example:
        for answer in t5prep.predict("runs/sample", ["quality: How do I sort a list?"]):
            print(answer.prediction)
    """
    need_tensorflow()
    from t5prep.training.model.generation import Generation
    from t5prep.training.predict.predictions import Predictions

    with contextlib.ExitStack() as stack:
        source, texts = stack.enter_context(_source_of(rows))
        as_text = texts if texts is not None else as_text
        files = FileOptions(format, _encoding(encoding, texts), delimiter, escape, column_names, records)
        predictions = Predictions(
            model,
            source,
            which=checkpoint,
            reading=Reading(task, as_text, files, limit, split),
            generation=Generation(**generation),
            batch=batch,
            long=long,
            tokenizer=tokenizer,
            trust_code=trust_code,
            tpu=tpu,
            gpus=gpus,
        )
        weakref.finalize(predictions, stack.pop_all().close)  # a temporary file lives as long as it is read
    return predictions


def embed(
    model: str,
    rows: str | Path | BinaryIO | Iterable[str] | Iterable[Mapping[str, Any]],
    *,
    out: str,
    column: str = "",
    pooling: str = "auto",
    normalize: bool = False,
    dtype: str = "bfloat16",
    length: int = 0,
    padded: bool = False,
    batch: int = 16,
    shard_rows: int = 0,
    task: str = "",
    format: str = "",
    encoding: str = "",
    delimiter: str = "",
    escape: str = "",
    column_names: str = "",
    records: str = "",
    limit: int | None = None,
    split: str = "",
    checkpoint: str = "best",
    tokenizer: str = "",
    trust_code: bool = False,
    tpu: str | None = None,
    gpus: bool = False,
    replicas: int = 1,
    watch: Callable[[int, int], None] | None = None,
) -> "Embedded":
    """Write what an encoder makes of texts: a vector for each token, or for each text, in files that a trainer reads.

    The same call goes on where a killed one stopped: files that are there and unaltered are not computed again.

    Args:
        model: A run, a Hugging Face directory, or a Hub name: a T5 (its encoder alone is read) or another encoder.
        rows: A source as `t5prep.prepare` reads it, an open binary file, or rows or texts in memory, as for `t5prep.predict`.
        out: A directory or gs:// prefix for `vectors-*.safetensors` and `manifest.json`.
        column: The column with the texts, which are used unchanged; "" for what the task of the model's run reads, or
            `input` if there is none. An empty text is embedded, too.
        pooling: "none" for a vector of each token, "mean" for their mean, "first" for the first token's; "auto" for what the
            model's own files say (sentence-transformers' modules.json: also Dense, Normalize, prompt), else "none".
        normalize: Whether to divide the vector of a text by its length.
        dtype: "bfloat16" or "float32", of the vectors. On a TPU or GPU, products are in it.
        length: The most tokens of a text; 0 for the length of the run's data, the model's own, or 512. Longer ones are cut.
        padded: Whether texts are padded to `length`, and the vectors of padding kept.
        batch: Rows in one batch, over all devices.
        shard_rows: Rows of a file; 0 for 1,024, or 16,384 with pooling.
        task: For a model that was trained on several tasks: the task of these rows.
        format: "csv", "tsv", "jsonl", "parquet" or "text", where the source's name does not say it.
        encoding: Of text files; "" for that of the run's data.
        delimiter: Delimiter of the columns of CSV files; "" for that of the run's data.
        escape: Escape character of CSV files; "" for that of the run's data.
        column_names: Names of the columns of a table that does not begin with them, as "text,label".
        records: Where JSON documents have their rows, such as "data[].items[]".
        limit: Embed only this many rows.
        split: Of a source whose files are splits, the one to read; "" or "all" for every file.
        checkpoint: Of a run: "best", "last", or a step's number.
        tokenizer: The tokenizer, to replace the model's own.
        trust_code: Whether to execute the Python file of a task that came with the model, though this user has never run it.
        tpu: On a TPU: its name, or "local" on a TPU VM.
        gpus: Whether to use all GPUs of this machine.
        replicas: Logical CPU devices, for tests.
        watch: Is called with the rows and the characters of each file, when it is there.

    Returns:
        Embedded: the folder, how many rows, texts, tokens and files it has, and how many files were there already.

    Raises:
        T5prepError: In one sentence: a model, source or column is missing, or `out` has vectors of another model.

    Example:
        made = t5prep.embed("runs/sample", ["How do I sort a list?"], out="vectors/sample", column="input", pooling="mean")
        print(made.texts, made.width)
    """
    need_tensorflow()
    from t5prep.training.embed.embedding import Embedding
    from t5prep.training.embed.vectors import Output

    output = Output(pooling, normalize, dtype, padded)
    with _source_of(rows) as (source, texts):
        files = FileOptions(format, _encoding(encoding, texts), delimiter, escape, column_names, records)
        embedding = Embedding(
            model,
            source,
            which=checkpoint,
            reading=Reading(task, False, files, limit, split),
            column=column or (INPUT if texts else ""),
            output=output,
            length=length,
            batch=batch,
            rows=shard_rows,
            tokenizer=tokenizer,
            trust_code=trust_code,
            tpu=tpu,
            gpus=gpus,
            replicas=replicas,
        )
        return embedding.write(out, watch=watch)


def _encoding(encoding: str, texts: bool | None) -> str:
    """Return the encoding to read rows in: those in memory (`texts` is not None) were written as UTF-8."""
    return encoding if texts is None else "utf-8"


@contextlib.contextmanager
def _source_of(rows: Any) -> Iterator[tuple[Any, bool | None]]:
    """Yield rows as a source, and whether all are texts; None for what is no rows in memory. Raises UsageError."""
    if hasattr(rows, "read"):
        with memory.piped(cast(BinaryIO, rows), name=STDIN) as source:
            yield source, None
    elif isinstance(rows, str | Path):
        yield str(rows), None
    else:
        with memory.written(rows, name=f"{STDIN}.jsonl", text_column=INPUT) as given:
            yield given
