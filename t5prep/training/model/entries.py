"""Read what several families have in a `config.json`: classes and what is told of a text, sizes, and kinds of layers.

This module imports no TensorFlow, as `architecture` does not.
"""

import reprlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from t5prep.errors import UsageError
from t5prep.json_values import JSON
from t5prep.training.objectives import OBJECTIVES, NumberObjective, TagsObjective

# The entries of a `config.json`: their values are of any type until `architecture.read_config` has checked those of the config.
Entries: TypeAlias = Mapping[str, Any]
MOST_NAMES = 1 << 20  # of classes that a config counts but does not name
MOST_KINDS = 10_000  # of layers in `layer_types`


def classes_of(config: Entries) -> tuple[str, ...]:
    """Return the names of the classes in the order of the logits; two unnamed ones if the config names none.

    >>> classes_of({"id2label": {"1": "up", "0": "down"}})
    ('down', 'up')
    """
    class_names = config.get("id2label")
    if not isinstance(class_names, Mapping):
        number = config.get("num_labels", 2)
        if type(number) is not int or not 0 <= number <= MOST_NAMES:
            raise ValueError(f"num_labels is {reprlib.repr(number)}")
        return tuple(f"LABEL_{index}" for index in range(number))
    return tuple(str(class_names[number]) for number in sorted(class_names, key=int))


def class_entries(classes: Sequence[str]) -> dict[str, JSON]:
    """Return the entries of a `config.json` by which `transformers` knows the names."""
    return {
        "id2label": {str(number): name for number, name in enumerate(classes)},
        "label2id": {name: number for number, name in enumerate(classes)},
    }


def class_order(model_classes: Sequence[str], classes: Sequence[str]) -> list[int] | None:
    """Return the index in `model_classes` of each of `classes`; None unless both have the same names, at least without regard to case.

    >>> class_order(("NEGATIVE", "POSITIVE"), ("positive", "negative")), class_order(("LABEL_0", "LABEL_1"), ("down", "up"))
    ([1, 0], None)
    """
    for normalize in (str, str.casefold):
        index = {normalize(name): number for number, name in enumerate(model_classes)}
        order = [index.get(normalize(name)) for name in classes]
        if len(index) == len(model_classes) == len(classes) == len({*order} - {None}):
            return [number for number in order if number is not None]
    return None


def names_classes(classes: Sequence[str]) -> bool:
    """Check whether a model's classes have names, and not the numbers that transformers writes where nobody named them."""
    return not all(name == f"LABEL_{number}" for number, name in enumerate(classes))


# The entry of a config.json that says that a T5ForTokenClassification tells apart whole texts, by the mean over tokens.
POOLED = {"pooling": "mean"}


def head_target(config: Entries) -> str:
    """Return what the model of a `config.json` tells of a text (`Settings.target`). As in transformers, one logit is a number.

    >>> head_target({"architectures": ["BertForTokenClassification"]}), head_target({"problem_type": "regression"})
    ('tags', 'number')
    """
    pooled = POOLED.items() <= config.items()
    if not pooled and any(str(name).endswith(TagsObjective.head) for name in config.get("architectures") or ()):
        return "tags"
    problem = config.get("problem_type") or (NumberObjective.problem if len(classes_of(config)) == 1 else None)
    return next((name for name, kind in OBJECTIVES.items() if kind.problem and kind.problem == problem), "class")


def head_of(config: Entries) -> dict[str, Any]:
    """Return the fields of a config that are about its head."""
    return {"classes": classes_of(config), "target": head_target(config)}


def check_usual(config: Entries, entries: Sequence[tuple[str, object]]) -> None:
    """Raise UsageError if a config has another value for one of the entries than the one that is computed."""
    for name, usual in entries:
        if config.get(name, usual) != usual:
            raise UsageError(f"The model has {name} {reprlib.repr(config[name])}, and only {usual!r} is computed here.")


def fields_of(config: Entries, names: Mapping[str, str]) -> dict[str, Any]:
    """Return the entries that a config has, by our names of fields; `names` has the entry of each field."""
    return {field: config[name] for field, name in names.items() if config.get(name) is not None}


def check_known(model_config: object, names: Mapping[str, str], **choices: Sequence[str]) -> None:
    """Raise UsageError if a field of a config has none of its known values; `names` has the entry of each field."""
    for field, values in choices.items():
        if (field_value := getattr(model_config, field)) not in values:
            raise UsageError(
                f'The model has {names[field]} "{str(field_value)[:80]}", and known are {", ".join(values)}.'
            )


def positive(number: object) -> float:
    """Return a number of a config as a float. Raises ValueError if it is none, or not finite and above 0, also as a float32."""
    if not isinstance(number, int | float) or isinstance(number, bool) or not 1e-30 < number < 1e30:
        raise ValueError(f"{reprlib.repr(number)} is not a number above 0")
    return float(number)


def rotation_of(rope: Entries | None, base: object, *, may_divide: bool = False) -> tuple[float, float]:
    """Return the base of the angles of an entry like `rope_parameters`, and by what positions are divided.

    base: what an entry without one means. Raises UsageError for a kind of rotation that is not computed.
    """
    rope_parameters = dict(rope or {})
    factor = rope_parameters.pop("factor", 1.0) if may_divide and rope_parameters.get("rope_type") == "linear" else None
    if factor is not None:
        del rope_parameters["rope_type"]
    check_usual(rope_parameters, (("rope_type", "default"), ("type", "default"), ("partial_rotary_factor", 1.0)))
    return positive(rope_parameters.get("rope_theta") or base), positive(factor or 1.0)


FULL, SLIDING = "full_attention", "sliding_attention"  # kinds of layers (layer_types)


def kinds_of(layers: int, *, every: int, last: bool = False) -> list[str]:
    """Return the kind of each layer: of `every` layers one is a full one, the first of them, or the last.

    >>> kinds_of(3, every=2), kinds_of(3, every=2, last=True)[1]
    (['full_attention', 'sliding_attention', 'full_attention'], 'full_attention')
    """
    return [SLIDING if (number + last) % every else FULL for number in range(layers)]


def full_every(*stacks: Sequence[str], last: bool = False) -> int:
    """Return the `every` by which `kinds_of` gives the kinds of each stack of layers. Raises UsageError for another order."""
    if (longest := max(map(len, stacks))) > MOST_KINDS:
        raise ValueError(f"layer_types has {longest} layers")
    for every in range(1, longest + 1 + last):
        if all(list(kinds) == kinds_of(len(kinds), every=every, last=last) for kinds in stacks):
            return every
    raise UsageError(
        f"The model's layer_types are {', '.join(map(str, stacks[0]))[:80]}, and computed here is {FULL} in every n-th layer,"
        f" from the {'n-th' if last else 'first'} on, and {SLIDING} in the others."
    )
