"""Causal questions → answers: Webis-CausalQA-22.

Source   Zenodo 7186761: Webis-CausalQA-22-v-1.0.zip, input/{original,random}-splits/<subset>_{train,valid}_*.csv.
Example  what causes rain? \\n water vapour condenses into clouds. → condensation of water vapour
Paper    Bondarenko et al. 2022, CausalQA: A Benchmark for Causal Question Answering (COLING). The columns of the files
         and the rules are from its scripts: webis-de/coling22-benchmark-for-causal-question-answering.

As in UnifiedQA, question and context are joined by a space, a backslash, the letter n, and a space. Truncation cuts the
context, never the question. If a row has several answers (joined by tabs), the first is the target and all are references.
webis-de/coling22-benchmark-for-causal-question-answering trains on the joined string instead.
"""

import dataclasses
import re

from t5prep.errors import Reject, UsageError
from t5prep.options.fields import option
from t5prep.reading.rows import Record, text
from t5prep.tasks.example import Example, Part, Protected
from t5prep.tasks.task import Columns, Corpus, Task

SUBSETS = (
    *("paq", "gooaq", "msmarco", "naturalquestions", "eli5"),
    *("searchqa", "squad2", "newsqa", "hotpotqa", "triviaqa"),
)
SEPARATOR = " \\n "
ANSWERS = ("answer", "answer_processed")

_NOT_A_WORD = re.compile("[^А-Яа-яЁёЙйA-Za-z0-9]")
# The seven rules by which Webis selected questions (their notebook "rules"), applied to words joined by single spaces.
_CAUSAL = re.compile(
    r"\Awhy|(?=\Aif)(?=.*why )|(?=\Awhen)(?=.*why )| and why | why is \w+ | is \w+ why "
    r"|\Acause.? | cause.? |because of what"
    r"|how come |how did "
    r"|^(?!.*dopplar).*effect.? | affect? "
    r"| lead to"
    r"|(?=.*what (?:happens|will happen|might happen))(?=.*(?:if|when))"
    r"|\Awhat (?:to do|should be done) (?:if|when|to) "
)


@dataclasses.dataclass(frozen=True)
class Options:
    """The choice of the benchmark's files and rows."""

    subset: str = option("squad2", "dataset of the benchmark", choices=SUBSETS)
    partition: str = option(
        "original",
        "the splits of the dataset's authors, or the benchmark's random splits",
        choices=("original", "random"),
    )
    questions: str = option(
        "all", "all questions, or only those that are causal by the benchmark's rules", choices=("all", "causal")
    )


def is_causal(question: str) -> bool:
    """Check whether a question is causal by one of the benchmark's seven rules.

    >>> is_causal("What happens if the sun goes out?"), is_causal("Who is the mayor?")
    (True, False)
    """
    return bool(_CAUSAL.search(" ".join(_NOT_A_WORD.sub(" ", question.lower()).split())))


def to_inputs(record: Record, options: Options) -> Example:
    """Return a question with its context, without its answer. Raises Reject if the question is empty."""
    question = text(record, "question_processed").strip()
    context = text(record, "context_processed", "").strip()
    if not question:
        raise Reject("empty question")
    inputs: tuple[Part, ...] = (Protected(question + SEPARATOR), context) if context else (Protected(question),)
    return Example(id=text(record, "id", "") or None, inputs=inputs, targets="")


def to_example(record: Record, options: Options) -> Example:
    """Return a question with its answers. Raises Reject if the question, the answers or the id are missing."""
    if record["id"] in (None, ""):
        raise Reject("empty id")
    input_example = to_inputs(record, options)
    listed = text(record, "answer", "answer_processed", "")
    answers = tuple(dict.fromkeys(answer.strip() for answer in listed.split("\t") if answer.strip()))
    if not answers:
        raise Reject("no answer")
    if options.questions == "causal" and not is_causal(text(record, "question_processed").strip()):
        raise Reject("not causal: none of the benchmark's rules finds it so")
    return Example(id=text(record, "id"), inputs=input_example.inputs, targets=answers[0], references=answers)


def columns(options: Options) -> Columns:
    """Return the columns that are read. Raises UsageError for ELI5, of which the archive has no texts."""
    if options.subset == "eli5":
        raise UsageError(
            "--subset eli5 has no texts: the archive holds only the ids of ELI5's posts, because the "
            "texts may not be redistributed. Choose another subset, or prepare your own file with `t5prep "
            "prepare text2text`.",
            code="task.subset-unavailable",
        )
    return Columns(inputs=("question_processed", ("context_processed", "")), targets=(ANSWERS,), id="id")


TASK = Task(
    to_example=to_example,
    to_inputs=to_inputs,
    columns=columns,
    options=Options,
    corpus=Corpus(
        source="zenodo:7186761",
        files=("*{subset}_*_{partition}_split.csv",),
        licence="not stated here: see the Zenodo record, and each dataset's own",
        citation="Bondarenko et al. 2022, CausalQA: A Benchmark for Causal Question Answering",
    ),
    input_length=2048,
    target_length=100,
    metrics=("squad", "normalized_rouge"),
)
