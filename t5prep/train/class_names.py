"""Spell classes by their numbers, and put a model's classes in the order of a dataset."""

from collections.abc import Sequence

from t5prep.errors import UsageError
from t5prep.train.model.architecture import Config


class ClassNames:
    """Return the name of a class by its number."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def text(self, number: int) -> str:
        """Return the name of a class."""
        return self._names[int(number)]


def logits_order(config: Config, classes: Sequence[str], *, data: str) -> list[int]:
    """Return which of the model's logits belongs to each class of a dataset; an empty list for a model that writes texts.

    A model and a dataset that name the same classes in another order are compared by the names, without regard to case;
    others by the numbers. Raises UsageError where the model has other classes or writes texts.
    """
    if not config.classes:
        if classes:
            raise UsageError(
                f"{data} has the numbers of classes as targets, and the model is a T5, which writes texts: prepare it with "
                "--target text"
            )
        return []
    if len(classes) != len(config.classes):
        has = f"has {len(classes)} classes ({', '.join(classes[:8])})" if classes else "has texts as targets"
        raise UsageError(
            f"{data} {has}, and the model tells {len(config.classes)} classes apart ({', '.join(config.classes[:8])}): "
            "prepare the dataset that it was trained for."
        )
    own, names = ([name.casefold() for name in some] for some in (config.classes, classes))
    return [own.index(name) for name in names] if sorted(own) == sorted(names) else list(range(len(names)))
