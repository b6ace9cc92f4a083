"""Define the public functions of training: `t5prep.train`, `evaluate`, `predict` and `embed`."""

import contextlib
import dataclasses
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from t5prep.json_values import JSON
from t5prep.options.fields import accepts, build
from t5prep.options.models import EmbedOptions, EvaluateOptions, PredictOptions, RowOptions, TrainOptions
from t5prep.sources import Resolved, memory
from t5prep.training import need_tensorflow
from t5prep.training.predict.prediction_inputs import INPUT, STDIN
from t5prep.training.settings import train_config
from t5prep.training.settings.train_config import TrainConfig

if TYPE_CHECKING:
    from t5prep.training.embed.embedding import Embedded
    from t5prep.training.evaluate.evaluator import Prediction, Wrong
    from t5prep.training.predict.predictions import Predictions
    from t5prep.training.trainer import Result


@dataclasses.dataclass(frozen=True)
class Scores:
    """The result of `t5prep.evaluate`: the scores of a checkpoint on a split.

    `checkpoint` is the scored checkpoint. `metrics` holds numbers by name (`loss`, `accuracy`, the task's own); for a task
    with classes also `labels` and `confusion`. `predictions` has a dict for each record (`id`, `prediction`, `references`,
    `loss`, `scores`). `worst` holds the wrong answers with the highest losses, and `sample` random wrong answers to each
    class. If several splits or datasets were scored, `metrics` holds their means, `evaluations` the Scores of each one, and
    `predictions`, `worst` and `sample` are empty.
    """

    checkpoint: str
    metrics: Mapping[str, JSON]
    predictions: list["Prediction"]
    worst: list["Wrong"]
    sample: list["Wrong"] = dataclasses.field(default_factory=list)
    data: str = ""
    split: str = ""
    evaluations: list["Scores"] = dataclasses.field(default_factory=list)

    def to_json(self, *, scores: bool = False) -> dict[str, object]:
        """Return the JSON that `t5prep eval --json` prints. With `scores`, each prediction has its own scores."""
        entries = {"checkpoint": self.checkpoint}
        if self.evaluations:
            return {
                **entries,
                "metrics": self.metrics,
                "evaluations": [evaluation._split_to_json(scores) for evaluation in self.evaluations],
            }
        return {**entries, **self._split_to_json(scores)}

    def _split_to_json(self, scores: bool) -> dict[str, object]:
        """Return the part of the JSON that describes one split."""
        left_out = () if scores else ("scores",)
        return {
            "data": self.data,
            "split": self.split,
            "metrics": self.metrics,
            "predictions": [
                {name: value for name, value in answer.items() if name not in left_out} for answer in self.predictions
            ],
            "worst": [dataclasses.asdict(answer) for answer in self.worst],
            "sample": [dataclasses.asdict(answer) for answer in self.sample],
        }


def configuration(options: TrainOptions) -> TrainConfig:
    """Return the settings of a run. `options.settings` override the other options, and these the recipe. Raises UsageError."""
    arguments = {name: getattr(options, name) for name in ("data", "out", "model", "tokenizer")}
    return train_config.build(
        train_config.read_recipe(options.recipe) if options.recipe else {},
        {name: value for name, value in arguments.items() if value},
        options.settings or {},
    )


@accepts(TrainOptions)
def train(**options: object) -> "Result":
    """Train a T5 on prepared data, or an encoder on data with classes, or resume the run that is in `out`.

    The same call resumes a stopped run at its next step, with the same losses as a run that was never stopped. A recipe
    may name the model. `settings` are the fields of `t5prep.training.settings.train_config.TrainConfig`.

    Args:
        **options

    Returns:
        The run's directory, its number of steps, its best checkpoint, and that checkpoint's evaluation
        (`result.evaluation.metrics`), which is None for a dataset without the evaluation split.

    Raises:
        T5prepError: TensorFlow is missing, a setting is not possible, data and tokenizer do not fit, or a signal stopped
            the run (after saving). The message is one sentence.

    Example:
        result = t5prep.train(data="data/sample", out="runs/sample", recipe="tiny", settings={"steps": 4, "warmup": 2})
        print(result.steps, result.evaluation.metrics["accuracy"])
    """
    need_tensorflow()
    from t5prep.training import trainer

    chosen = build(TrainOptions, options, owner="train")
    config = configuration(chosen)
    return trainer.train(config, tpu=chosen.tpu, gpus=chosen.gpus, replicas=chosen.replicas, profile=chosen.profile)


@accepts(EvaluateOptions)
def evaluate(model: str, **options: object) -> Scores:
    """Score a model on every record of a split, or of several splits and datasets, once.

    Args:
        model: A run, a Hugging Face directory, or a Hub name.
        **options

    Returns:
        Scores: checkpoint, metrics, predictions, worst; for several splits or datasets the means, and `evaluations`.

    Raises:
        T5prepError: A model, dataset or split is missing, or they do not fit together. The message is one sentence.

    Example:
        scores = t5prep.evaluate("runs/sample", split="validation")
        print(scores.metrics["accuracy"], scores.worst[0].prediction)
    """
    need_tensorflow()
    from t5prep.training.evaluate import validation
    from t5prep.training.evaluate.splits import score_splits

    name, scored = score_splits(model, build(EvaluateOptions, options, owner="evaluate"))
    evaluations = [Scores(name, **vars(evaluation), data=folder, split=split) for folder, split, evaluation in scored]
    if len(evaluations) == 1:
        return evaluations[0]
    mean = validation.mean([evaluation.numbers() for *_, evaluation in scored])
    return Scores(name, mean, [], [], evaluations=evaluations)


@accepts(PredictOptions)
def predict(
    model: str, rows: str | Path | BinaryIO | Iterable[str] | Iterable[Mapping[str, object]], **options: object
) -> "Predictions":
    """Answer rows with a trained model, one answer for each row, in order.

    Rows are answered while the caller iterates over the result or calls its `write`. Earlier answers are not held in
    memory, so a source may have any size.

    Args:
        model: A run, a Hugging Face directory, or a Hub name.
        rows: A source as `t5prep.prepare` reads it (a table with the columns of the model's task, without the target), an
            open binary file, or the same rows as a DataFrame, an Arrow table, a dataset of the Hub's `datasets`, or dicts.
            Also texts: each is a complete input, with the task's prefix. Filters that changed the training texts change
            these rows too.
        **options

    Returns:
        Predictions, which yields answers with `id`, `input` and `prediction`. For a row without an input, `prediction`
        is None and `reason` says why. Its `write("answers.csv")` writes a file that the same call resumes after a kill.

    Raises:
        T5prepError: A model, source or column is missing, or options of generation contradict each other. The message is
            one sentence.

    Example:
        for answer in t5prep.predict("runs/sample", ["quality: How do I sort a list?"]):
            print(answer.prediction)
    """
    need_tensorflow()
    from t5prep.training.predict.predictions import Predictions

    chosen = build(PredictOptions, options, owner="predict")
    with contextlib.ExitStack() as stack:
        source, texts = stack.enter_context(_source_of(rows))
        if texts is not None:
            chosen = dataclasses.replace(chosen, rows=_in_memory(chosen.rows, as_text=texts))
        predictions = Predictions(model, source, chosen)
        weakref.finalize(predictions, stack.pop_all().close)  # a temporary file lives as long as it is read
    return predictions


@accepts(EmbedOptions)
def embed(
    model: str,
    rows: str | Path | BinaryIO | Iterable[str] | Iterable[Mapping[str, object]],
    *,
    out: str,
    watch: Callable[[int, int], None] | None = None,
    **options: object,
) -> "Embedded":
    """Write encoder embeddings of texts, a vector for each token or each text, to files that a trainer reads.

    The same call resumes after a kill: existing, unaltered files are not computed again. Texts are used unchanged, and an
    empty text is embedded too.

    Args:
        model: A run, a Hugging Face directory, or a Hub name: a T5 (its encoder alone is read) or another encoder.
        rows: A source as `t5prep.prepare` reads it, an open binary file, or rows or texts in memory, as for `t5prep.predict`.
        out: A directory or gs:// prefix for `vectors-*.safetensors` and `manifest.json`.
        watch: A function that is called for each finished file, with the numbers of its rows and of their characters.
        **options

    Returns:
        Embedded: the folder, the numbers of its rows, texts, tokens and files, and how many files existed before.

    Raises:
        T5prepError: A model, source or column is missing, or `out` has vectors of another model. The message is one
            sentence.

    Example:
        made = t5prep.embed("runs/sample", ["How do I sort a list?"], out="vectors/sample", column="input", pooling="mean")
        print(made.texts, made.width)
    """
    need_tensorflow()
    from t5prep.training.embed.embedding import Embedding

    chosen = build(EmbedOptions, options, owner="embed")
    with _source_of(rows) as (source, texts):
        if texts is not None:
            column = chosen.column or (INPUT if texts else "")
            chosen = dataclasses.replace(chosen, rows=_in_memory(chosen.rows), column=column)
        return Embedding(model, source, chosen).write(out, watch=watch)


def _in_memory(options: RowOptions, *, as_text: bool = False) -> RowOptions:
    """Return the options for rows from memory, which were written to a temporary file in UTF-8."""
    return dataclasses.replace(options, as_text=as_text, files=dataclasses.replace(options.files, encoding="utf-8"))


@contextlib.contextmanager
def _source_of(rows: object) -> Iterator[tuple[str | Resolved, bool | None]]:
    """Yield `rows` as a source, and whether all rows are texts; None for a file or a source's URI. Raises UsageError."""
    if hasattr(rows, "read"):
        with memory.piped(cast(BinaryIO, rows), name=STDIN) as source:
            yield source, None
    elif isinstance(rows, str | Path):
        yield str(rows), None
    else:
        with memory.written(rows, name=f"{STDIN}.jsonl", text_column=INPUT) as source_pair:
            yield source_pair
