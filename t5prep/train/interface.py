"""Define the public functions of training with plain arguments: `t5prep.train`, `t5prep.evaluate`, `t5prep.predict`."""

import contextlib
import dataclasses
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t5prep.errors import UsageError
from t5prep.sources import RawFile, Resolved
from t5prep.train import config as configs
from t5prep.train.config import TrainConfig
from t5prep.train.installed import need_tensorflow
from t5prep.train.rows_to_predict import STDIN

if TYPE_CHECKING:
    from t5prep.train.evaluate import Worst
    from t5prep.train.predict import Answer
    from t5prep.train.trainer import Result


@dataclasses.dataclass(frozen=True)
class Scores:
    """Hold the result of `t5prep.evaluate`: the scores of a checkpoint on a split.

    `checkpoint` is the one that was scored. `metrics` holds numbers by name (`loss`, `accuracy`, the task's own); for a
    task with classes also `labels` and `confusion`. `predictions` has a dict for each record (`id`, `prediction`,
    `references`, ...), and `worst` the wrong answers with the highest losses.
    """

    checkpoint: str
    metrics: dict[str, Any]
    predictions: list[dict[str, Any]]
    worst: list["Worst"]

    def to_json(self) -> dict[str, Any]:
        """Return what `t5prep eval --json` prints."""
        return {**dataclasses.asdict(self)}


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
            `t5prep.train.config.TrainConfig`.
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
    from t5prep.train import trainer

    config = configuration(data=data, out=out, model=model, recipe=recipe, tokenizer=tokenizer, settings=settings)
    return trainer.train(config, tpu=tpu, gpus=gpus, replicas=replicas, profile=profile)


def evaluate(
    model: str,
    *,
    data: str = "",
    split: str = "validation",
    checkpoint: str = "best",
    batch: int = 32,
    limit: int = 0,
    worst: int = 20,
    tokenizer: str = "",
    bootstrap: bool = False,
    dtype: str = "auto",
    tpu: str | None = None,
    gpus: bool = False,
    **generation: Any,
) -> Scores:
    """Score a model on every record of a split, once.

    Args:
        model: A run, a Hugging Face directory, or a Hub name.
        data: A prepared dataset; for a run it may be left out, and its training dataset is used.
        split: The split to score.
        checkpoint: Of a run: "best", "last", or a step's number.
        batch: Rows in one batch, over all devices.
        limit: Score only this many records, the first ones; 0 is all.
        worst: How many wrong answers to return, those with the highest losses.
        tokenizer: The tokenizer, where the one that the manifest names is no longer there.
        bootstrap: Whether to add 95 % intervals to ROUGE.
        dtype: "float32" or "bfloat16" for matrix products; "auto" is float32 on a CPU.
        tpu: On a TPU: its name, or "local" on a TPU VM.
        gpus: Whether to use all GPUs of this machine.
        **generation: Options for generating answers of several tokens, such as `beams=4`: the fields of
            `t5prep.train.model.generation.Generation`.

    Returns:
        Scores: checkpoint, metrics, predictions, worst.

    Raises:
        T5prepError: In one sentence: a model, dataset or split is missing, or they do not fit together.

    Example:
        scores = t5prep.evaluate("runs/sample", split="validation")
        print(scores.metrics["accuracy"], scores.worst[0].prediction)
    """
    need_tensorflow()
    from t5prep.train import evaluate as evaluation
    from t5prep.train.model.generation import Generation

    loaded = evaluation.load(model, which=checkpoint, tpu=tpu, gpus=gpus)
    scored = evaluation.evaluate(
        loaded,
        data=data,
        split=split,
        batch=batch,
        limit=limit,
        tokenizer=tokenizer,
        bootstrap=bootstrap,
        worst=worst,
        dtype=dtype,
        generation=Generation(**generation),
    )
    return Scores(loaded.opened.name, scored.metrics, scored.predictions, scored.worst)


def predict(
    model: str,
    rows: str | Path | Iterable[str] | Iterable[Mapping[str, Any]],
    *,
    task: str = "",
    checkpoint: str = "best",
    batch: int = 16,
    long: str = "",
    limit: int | None = None,
    tokenizer: str = "",
    tpu: str | None = None,
    gpus: bool = False,
    **generation: Any,
) -> list["Answer"]:
    """Answer rows with a trained model, one answer for each row, in order.

    Args:
        model: A run, a Hugging Face directory, or a Hub name.
        rows: A source as `t5prep.prepare` reads it (a table with the columns of the model's task, without the target), the
            same rows as dicts, or a list of texts, which are used unchanged as inputs and include the task's prefix.
        task: For a model that was trained on several tasks: the task of these rows.
        checkpoint: Of a run: "best", "last", or a step's number.
        batch: Rows in one batch, over all devices.
        long: What to do with inputs that are too long: "cut" as in training, "split" into parts, or "refuse"; "" for
            what suits the task.
        limit: Answer only this many rows.
        tokenizer: The tokenizer, to replace the model's own.
        tpu: On a TPU: its name, or "local" on a TPU VM.
        gpus: Whether to use all GPUs of this machine.
        **generation: Options for generating answers, such as `beams=4` or `answers=3`: the fields of
            `t5prep.train.model.generation.Generation`.

    Returns:
        Answers with `id`, `input` and `prediction`; for a row without an input, `prediction` is None and `reason` says
        why.

    Raises:
        T5prepError: In one sentence: a model, source or column is missing, or options of generation contradict each
            other.

    Example:
        answers = t5prep.predict("runs/sample", ["quality: How do I sort a list?"])
        print(answers[0].prediction)
    """
    need_tensorflow()
    from t5prep.train.model.generation import Generation
    from t5prep.train.predict_source import Asking, Reading

    with contextlib.ExitStack() as stack:
        as_text = False
        source: Any = str(rows)
        if not isinstance(rows, str | Path):
            items: list[Any] = list(rows)
            as_text = all(isinstance(item, str) for item in items)
            if not items:
                return []
            source = stack.enter_context(_written(items))
        asking = Asking(
            model,
            source,
            which=checkpoint,
            reading=Reading(task=task, as_text=as_text, limit=limit),
            generation=Generation(**generation),
            batch=batch,
            long=long,
            tokenizer=tokenizer,
            tpu=tpu,
            gpus=gpus,
        )
        return [answer for window in asking.answers() for answer in window]


@contextlib.contextmanager
def _written(items: Sequence[str | Mapping[str, Any]]) -> Iterator[Resolved]:
    """Yield texts or rows as a source: a JSON lines file that is removed afterwards. Raises UsageError."""
    rows = [{"input": item} if isinstance(item, str) else item for item in items]
    if any(not isinstance(row, Mapping) for row in rows):
        raise UsageError("rows are texts, or dicts with the columns of the model's task; these are neither.")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        path.write_text("".join(json.dumps(dict(row)) + "\n" for row in rows), encoding="utf-8")
        raw = RawFile(name=f"{STDIN}.jsonl", path=str(path), bytes=path.stat().st_size)
        yield Resolved("rows in memory", "", (raw,), licence="", citation="")
