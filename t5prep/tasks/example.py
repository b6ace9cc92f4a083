"""Define a text-to-text example, the parts of its input, and the trace of the steps that change it."""

import dataclasses
from typing import Final

from t5prep.sources.split_names import is_split_name


class _Eos:
    """The type of EOS, which stands for the end-of-sequence token between two fields, never for the text `</s>`."""

    def __repr__(self) -> str:
        return "EOS"

    def __reduce__(self) -> str:
        return "EOS"


EOS: Final = _Eos()


@dataclasses.dataclass(frozen=True, slots=True)
class Protected:
    """Text that truncation must never cut, such as a question or an instruction."""

    text: str


# A part of an input. Neighbouring texts are joined without a space; the tokenizer adds the last EOS.
Part = str | Protected | _Eos


@dataclasses.dataclass(frozen=True, slots=True)
class Example:
    """A text-to-text pair (Raffel et al. 2020, figure 1), before it is tokenized.

    `id` is None if the source has none; the row's position in its file is used then. `references` holds all correct answers of
    an evaluation example, including the target. `split` is the split of the source; None to draw it from the id.
    """

    id: str | None
    inputs: str | tuple[Part, ...]
    targets: str
    references: tuple[str, ...] = ()
    split: str | None = None


@dataclasses.dataclass
class Trace:
    """The changes that the steps of preparing make to the example of one row, for `t5prep why`.

    `filters` holds each filter's text, the example before and after it, and the reason if it rejected the row. `inputs` and
    `targets` hold the sequences of ids that were cut out of the two sides.
    """

    filters: list[tuple[str, Example, Example, str]] = dataclasses.field(default_factory=list)
    inputs: list[list[int]] = dataclasses.field(default_factory=list)
    targets: list[list[int]] = dataclasses.field(default_factory=list)


def text_of(inputs: str | tuple[Part, ...]) -> str:
    """Return all texts of an input, with each part on a separate line."""
    if isinstance(inputs, str):
        return inputs
    texts = (part.text if isinstance(part, Protected) else part for part in inputs)
    return "\n".join(text for text in texts if isinstance(text, str))


def problem(example: object) -> str:
    """Return the problem with the value that a task's to_example returned; "" for a valid example.

    >>> problem(Example(id=7, inputs="a", targets="b"))
    'the id of its Example is of type int, not str'
    """
    if not isinstance(example, Example):
        return f"it returned {type(example).__name__}, not an Example"
    if not isinstance(example.id, str | None):
        return f"the id of its Example is of type {type(example.id).__name__}, not str"
    if not isinstance(example.references, tuple | list):
        return f"the references of its Example are of type {type(example.references).__name__}, not a tuple of str"
    if example.split and not (isinstance(example.split, str) and is_split_name(example.split)):
        return f"the split of its Example is {example.split!r:.80}, not a name of letters, digits, - and _"
    parts = (example.inputs,) if isinstance(example.inputs, str) else example.inputs
    if not isinstance(parts, tuple) or not parts:
        return f"the inputs of its Example are of type {type(parts).__name__}, not a str or a tuple of parts"
    for name, values, kinds in (
        ("inputs", parts, (str, Protected, _Eos)),
        ("targets", (example.targets,), (str,)),
        ("references", example.references, (str,)),
    ):
        for value in values:
            if not isinstance(value, kinds):
                return f"the {name} of its Example hold a value of type {type(value).__name__}, not str"
    return ""


def not_utf8(example: Example) -> str:
    r"""Return the reason for rejecting an example whose texts cannot be written in UTF-8; "" if they can.

    >>> not_utf8(Example(None, "half \ud83d", "yes")), not_utf8(Example(None, "whole", "yes"))
    ('no text: half of a surrogate pair (U+D83D)', '')
    """
    texts = (example.id, text_of(example.inputs), example.targets, *example.references, example.split)
    for text in filter(None, texts):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            return f"no text: half of a surrogate pair (U+{ord(text[error.start]):04X})"
    return ""
