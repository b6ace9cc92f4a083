"""A text-to-text example, and the parts that its input is made of."""

import dataclasses
from typing import Final


class _Eos:
    """The end-of-sequence token between two fields: a token, never the text `</s>`."""

    def __repr__(self) -> str:
        return "EOS"

    def __reduce__(self) -> str:
        return "EOS"


EOS: Final = _Eos()


@dataclasses.dataclass(frozen=True, slots=True)
class Protected:
    """Text that truncation must never cut: a question, an instruction."""

    text: str


# What an input is made of, in order. Neighbouring texts join without a space; the last EOS is added by the tokenizer.
Part = str | Protected | _Eos


@dataclasses.dataclass(frozen=True, slots=True)
class Example:
    """One text-to-text pair (Raffel et al. 2020, figure 1), before it is tokenized.

    `id` is None where the source has none: the row's place in its file is used. `references` are all right answers of
    an evaluation example, the target among them. `split` is the source's own, or None to be drawn from the id.
    """

    id: str | None
    inputs: str | tuple[Part, ...]
    targets: str
    references: tuple[str, ...] = ()
    split: str | None = None


def text_of(inputs: str | tuple[Part, ...]) -> str:
    """Return all texts of an input, each part in a line of its own."""
    if isinstance(inputs, str):
        return inputs
    texts = (part.text if isinstance(part, Protected) else part for part in inputs)
    return "\n".join(text for text in texts if isinstance(text, str))
