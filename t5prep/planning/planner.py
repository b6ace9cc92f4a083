"""Turn a user's options into questions to the compiler, and compare ways to lay out a dataset by its answers."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from t5prep.dataset import manifest
from t5prep.dataset.manifest import Split
from t5prep.errors import DatasetError, UsageError, did_you_mean
from t5prep.planning import lengths as planner
from t5prep.planning.chips import parse
from t5prep.planning.extending import Ask
from t5prep.planning.lengths import Choice
from t5prep.planning.models import shape_of
from t5prep.planning.question import Answer, Question, ask
from t5prep.training.model.architecture import EncoderConfig, filling_masks, training_flops, with_classes
from t5prep.training.settings import config as configs
from t5prep.training.settings.padding import Padding

# The default lengths. T5's own are 512 and 512 (Raffel et al. 2020, 3.1.2), but fine-tuning needs no targets of 512.
LENGTHS = (512, 64)


@dataclasses.dataclass(frozen=True)
class Data:
    """A prepared dataset, as far as planning needs it.

    `embeddings` is the padded size of its tokenizer's vocabulary; `classes` the names of classes whose numbers are its
    targets; `masked`: its targets are hidden tokens, for an encoder.
    """

    where: str
    lengths: planner.Lengths
    packed: bool
    split: Split
    embeddings: int
    classes: tuple[str, ...] = ()
    padding: Padding | None = None
    masked: bool = False
    target: str = "text"


def read(data: str, *, split: str) -> Data:
    """Return a dataset's lengths and rows, from its manifest alone. Raises DatasetError."""
    dataset = manifest.load(data)
    if split not in dataset.splits:
        meant = did_you_mean(split, dataset.splits)
        raise DatasetError(f'{data} has no split "{split}".{meant} It has {", ".join(dataset.splits)}.')
    lengths = (dataset.settings.input_length, dataset.settings.target_length)
    return Data(
        data,
        lengths,
        dataset.settings.layout == "packed",
        dataset.splits[split],
        dataset.tokenizer.padded_vocab_size,
        dataset.target.classes,
        Padding.of_dataset(dataset),
        dataset.target.is_aligned and not dataset.target.classes,
        dataset.settings.target,
    )


def questions(
    *,
    model: str,
    tpus: Sequence[str],
    batches: Sequence[int],
    data: Data | None = None,
    lengths: tuple[int | None, int | None] = (None, None),
    packed: bool = False,
    settings: Sequence[Mapping[str, Any]] = (),
) -> list[Question]:
    """Return a question for each TPU with each batch (by default the recipe's or trainer's). Raises UsageError."""
    config = configs.build(*settings)
    name = model or config.model
    if not name:
        raise UsageError("Which model? Name one, such as --model t5-base, or a --recipe that has one.")
    shape = shape_of(name, classes=bool(data and data.classes))
    if data and config.weights == "random":  # `train` makes an embedding for each id of the data's tokenizer
        shape = dataclasses.replace(shape, vocab_size=data.embeddings)
    if data and data.classes:
        shape = with_classes(shape, data.classes, data.target)
    if data and data.masked and isinstance(shape, EncoderConfig):
        shape = filling_masks(shape)
    given = data.lengths if data else LENGTHS
    if shape.classes:
        given = (given[0], {"tags": given[0], "labels": len(shape.classes)}.get(shape.target, 1))
    inputs, targets = (said or default for said, default in zip(lengths, given, strict=True))
    return [
        Question(
            shape=shape,
            settings=dataclasses.replace(config, model=name, batch=batch),
            tpu=parse(tpu),
            input_length=inputs,
            target_length=targets,
            packed=packed or bool(data and data.packed),
            padding=data.padding if data else None,
        )
        for tpu in tpus
        for batch in (batches or [config.batch])
    ]


def plan_lengths(question: Question, data: Data, *, asking: Ask = ask) -> list[tuple[Choice, list[Answer]]]:
    """Return each way to lay out the dataset, with the compiler's answer for each shape. Raises DatasetError."""
    if data.packed:
        raise DatasetError(f"{data.where} is packed already; lengths are planned from a dataset that is not.")
    if data.target == "tags":
        raise DatasetError(
            f"{data.where} has a tag for each word: its targets are as long as its inputs. Ask for --input-length"
        )
    joint = planner.histogram(data.split, where=data.where)

    def cost(inputs: int, targets: int) -> float:
        return training_flops(question.shape, input_length=inputs, target_length=targets)

    answers = []
    for choice in planner.choices(joint, prepared=data.lengths, cost=cost):
        packed = choice.name == "packed"
        asked = [
            dataclasses.replace(question.with_(lengths=(s.input_length, s.target_length)), packed=packed)
            for s in choice.shapes
        ]
        answers.append((choice, [asking(one) for one in asked]))
    return answers
