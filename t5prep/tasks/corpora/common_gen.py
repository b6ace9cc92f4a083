"""Concepts → a sentence with all of them: CommonGen.

Source   The Hub's allenai/common_gen: 67,389 / 4,018 / 1,497 rows (rows without a sentence, as in a hidden test split,
         are rejected). JSON lines with concept_set (joined by #) and scene are read too.
Example  generate a sentence with: mountain ski skier → Skier skis down the mountain
Paper    Lin et al. 2020, CommonGen: A Constrained Text Generation Challenge for Generative Commonsense Reasoning.

A concept set has several sentences, one in each row. In training, each sentence is an example. In evaluation, the sentences
are the references of one example, whose id is the concept set.
"""

from collections.abc import Mapping

from t5prep.errors import Reject
from t5prep.reading import rows
from t5prep.reading.rows import Record
from t5prep.tasks.example import Example
from t5prep.tasks.task import Columns, Corpus, NoOptions, Task

PREFIX = "generate a sentence with: "


def to_inputs(record: Record, options: NoOptions) -> Example:
    """Return a concept set without a sentence. Raises Reject if it is empty."""
    concepts = _texts(record.get("concepts") or record.get("concept_set"), separator="#")
    if not concepts:
        raise Reject("no concepts")
    return Example(id=" ".join(concepts), inputs=PREFIX + " ".join(concepts), targets="")


def to_example(record: Record, options: NoOptions) -> Example:
    """Return a concept set with its sentence, or with several as references. Raises Reject if there is none."""
    input_example = to_inputs(record, options)
    sentences = _texts(record.get("target") or record.get("scene"))
    if not sentences:
        raise Reject("no sentence: hidden, as in the test split")
    return Example(
        id=input_example.id,
        inputs=input_example.inputs,
        targets=sentences[0],
        references=tuple(dict.fromkeys(sentences)),
    )


def _texts(value: rows.Value, *, separator: str | None = None) -> list[str]:
    """Return the texts in a list, or in a single text, which is cut at `separator` if there is one. Raises Reject."""
    if isinstance(value, Mapping):
        raise Reject("not text: an object where concepts or sentences are expected")
    values = value if isinstance(value, list) else [value] if separator is None else str(value or "").split(separator)
    texts = ("" if entry is None else str(entry).strip() for entry in values)
    return [text for text in texts if text]


TASK = Task(
    to_example=to_example,
    to_inputs=to_inputs,
    columns=Columns(inputs=(("concepts", "concept_set"),), targets=(("target", "scene"),)),
    corpus=Corpus(
        source="hf:allenai/common_gen",
        files=("*.parquet", "*.jsonl", "*.json"),
        licence="MIT",
        citation="Lin et al. 2020, CommonGen: A Constrained Text Generation Challenge for Generative Commonsense "
        "Reasoning, https://aclanthology.org/2020.findings-emnlp.165",
    ),
    input_length=32,
    target_length=32,
    metrics=("bleu", "rouge"),
    several_answers=True,
)
