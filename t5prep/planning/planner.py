"""Convert a user's options to questions for the compiler, and compare layouts of a dataset by its answers."""

import dataclasses
from collections.abc import Sequence

from t5prep.dataset.prepared import DatasetSplit
from t5prep.errors import DatasetError, UsageError
from t5prep.json_values import JSONObject
from t5prep.planning import lengths as planner
from t5prep.planning.chips import parse
from t5prep.planning.extending import Ask
from t5prep.planning.lengths import Choice
from t5prep.planning.model_shapes import shape_of
from t5prep.planning.question import Answer, Question, ask
from t5prep.training.model.architecture import training_flops, with_target
from t5prep.training.settings import train_config
from t5prep.training.settings.padding import Padding

# Default lengths of inputs and targets. T5 was trained with 512 and 512 (Raffel et al. 2020, 3.1.2), but fine-tuning
# needs no targets of 512.
LENGTHS = (512, 64)


def questions(
    *,
    model: str,
    tpus: Sequence[str],
    batches: Sequence[int],
    data: DatasetSplit | None = None,
    lengths: tuple[int | None, int | None] = (None, None),
    packed: bool = False,
    settings: Sequence[JSONObject] = (),
) -> list[Question]:
    """Return a question for each of `tpus` with each of `batches`; without any, with the batch of the settings.

    `lengths` are those of inputs and targets; None means the dataset's, or LENGTHS. Each of `settings` overrides the ones
    before it. Raises UsageError.
    """
    config = train_config.build(*settings)
    name = model or config.model
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
    default_lengths, learned = data.lengths if data else LENGTHS, shape.objective.target
    if not learned.is_text:
        default_lengths = (default_lengths[0], learned.length(default_lengths[0]))
    inputs, targets = (length or default for length, default in zip(lengths, default_lengths, strict=True))
    return [
        Question(
            shape=shape,
            settings=dataclasses.replace(config, model=name, batch=batch),
            tpu=parse(tpu),
            input_length=inputs,
            target_length=targets,
            packed=packed or bool(data and data.settings.is_packed),
            padding=Padding.of_dataset(data.manifest) if data else None,
        )
        for tpu in tpus
        for batch in (batches or [config.batch])
    ]


def plan_lengths(
    question: Question, data: DatasetSplit, *, compile_question: Ask = ask
) -> list[tuple[Choice, list[Answer]]]:
    """Return the layouts of the dataset (`lengths.choices`), with the compiler's answer for each shape.

    `compile_question` compiles a question. Raises DatasetError for a dataset whose lengths cannot be chosen.
    """
    if data.settings.is_packed:
        raise DatasetError(
            f"{data.folder} is packed, so its lengths cannot be planned. Use a dataset that is not packed.",
            code="plan.packed-dataset",
        )
    if data.manifest.target.is_aligned:
        raise DatasetError(
            f"{data.folder} has a label for each token, so its targets are as long as its inputs. Use "
            "--input-length instead of --lengths.",
            code="plan.token-targets",
        )
    joint = planner.histogram(data.facts, folder=data.folder)

    def cost(inputs: int, targets: int) -> float:
        return training_flops(question.shape, input_length=inputs, target_length=targets)

    answers = []
    for choice in planner.choices(joint, prepared=data.lengths, cost=cost):
        packed = choice.name == "packed"
        shape_questions = [
            dataclasses.replace(question.with_(lengths=(s.input_length, s.target_length)), packed=packed)
            for s in choice.shapes
        ]
        answers.append((choice, [compile_question(shape_question) for shape_question in shape_questions]))
    return answers
