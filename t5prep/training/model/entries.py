"""Read the entries of a `config.json` that several families share: classes, the kind of head, sizes, and kinds of layers.

Like `architecture`, this module imports no TensorFlow.
"""

import reprlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from t5prep.errors import UsageError
from t5prep.json_values import JSON
from t5prep.training.objectives import OBJECTIVES, NumberObjective, TagsObjective

# The entries of a `config.json`. Their values may have any type until `architecture.read_config` has checked the config.
Entries: TypeAlias = Mapping[str, Any]
# Limits for a file from a stranger: of `num_labels` without names, and of the layers in `layer_types`.
MOST_NAMES = 1 << 20
MOST_KINDS = 10_000


def classes_of(config: Entries) -> tuple[str, ...]:
    """Return the class names in the order of the logits; LABEL_0, LABEL_1, … if the config names none.

    Without `num_labels` there are two. Raises ValueError if `num_labels` is no possible number.

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
    """Return the entries of a `config.json` that tell `transformers` the class names."""
    return {
        "id2label": {str(number): name for number, name in enumerate(classes)},
        "label2id": {name: number for number, name in enumerate(classes)},
    }


def class_order(model_classes: Sequence[str], classes: Sequence[str]) -> list[int] | None:
    """Return the index in `model_classes` of each of `classes`; None unless both have the same names, apart from case.

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
    """Check whether a model's classes have real names. transformers writes LABEL_0, LABEL_1, … for unnamed classes."""
    return not all(name == f"LABEL_{number}" for number, name in enumerate(classes))


# The entry of a config.json that marks a T5ForTokenClassification as a classifier of texts, by the mean over the tokens.
POOLED = {"pooling": "mean"}


def head_target(config: Entries) -> str:
    """Return the kind of target of a model's head, as in `Settings.target`. As in transformers, a single logit is a number.

    >>> head_target({"architectures": ["BertForTokenClassification"]}), head_target({"problem_type": "regression"})
    ('tags', 'number')
    """
    pooled = POOLED.items() <= config.items()
    if not pooled and any(str(name).endswith(TagsObjective.head) for name in config.get("architectures") or ()):
        return "tags"
    problem = config.get("problem_type") or (NumberObjective.problem if len(classes_of(config)) == 1 else None)
    return next((name for name, kind in OBJECTIVES.items() if kind.problem and kind.problem == problem), "class")


def head_of(config: Entries) -> dict[str, Any]:
    """Return the fields of a config that describe its head: `classes` and `target`."""
    return {"classes": classes_of(config), "target": head_target(config)}


def check_usual(config: Entries, entries: Sequence[tuple[str, object]]) -> None:
    """Raise UsageError if an entry of a config has another value than the supported one. `entries`: pairs of name and value."""
    for name, usual in entries:
        if config.get(name, usual) != usual:
            raise UsageError(
                f"The model has {name} {reprlib.repr(config[name])}, but t5prep supports only {usual!r}. "
                "Choose another model.",
                code="model.unsupported-config",
            )


def fields_of(config: Entries, names: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of a config's entries by the names of our fields. `names` maps a field to its entry."""
    return {field: config[name] for field, name in names.items() if config.get(name) is not None}


def check_known(model_config: object, names: Mapping[str, str], **choices: Sequence[str]) -> None:
    """Raise UsageError if a field has an unknown value. `choices` maps a field to its known values, `names` to its entry."""
    for field, values in choices.items():
        if (field_value := getattr(model_config, field)) not in values:
            raise UsageError(
                f'The model has {names[field]} "{str(field_value)[:80]}", but t5prep supports only '
                f"{', '.join(values)}. Choose another model.",
                code="model.unsupported-config",
            )


def positive(number: object) -> float:
    """Return a number of a config as a float. Raises ValueError unless it is a number that a float32 holds as finite and > 0."""
    if not isinstance(number, int | float) or isinstance(number, bool) or not 1e-30 < number < 1e30:
        raise ValueError(f"{reprlib.repr(number)} is not a number above 0")
    return float(number)


def rotation_of(rope: Entries | None, base: object, *, may_divide: bool = False) -> tuple[float, float]:
    """Return the base of the angles in an entry such as `rope_parameters`, and the divisor of positions.

    base: the base if the entry has none. may_divide: accept linear scaling, which divides positions by a factor. Raises
    UsageError for an unsupported kind of rotation.
    """
    rope_parameters = dict(rope or {})
    factor = rope_parameters.pop("factor", 1.0) if may_divide and rope_parameters.get("rope_type") == "linear" else None
    if factor is not None:
        del rope_parameters["rope_type"]
    check_usual(rope_parameters, (("rope_type", "default"), ("type", "default"), ("partial_rotary_factor", 1.0)))
    return positive(rope_parameters.get("rope_theta") or base), positive(factor or 1.0)


FULL, SLIDING = "full_attention", "sliding_attention"  # kinds of layers (layer_types)


def kinds_of(layers: int, *, every: int, last: bool = False) -> list[str]:
    """Return the kind of each layer: the first (or with `last` the last) of each group of `every` layers is a full one.

    >>> kinds_of(3, every=2), kinds_of(3, every=2, last=True)[1]
    (['full_attention', 'sliding_attention', 'full_attention'], 'full_attention')
    """
    return [SLIDING if (number + last) % every else FULL for number in range(layers)]


def full_every(*stacks: Sequence[str], last: bool = False) -> int:
    """Return the `every` with which `kinds_of` gives the kinds of each of `stacks`, the inverse of that function.

    Raises UsageError for any other order of kinds.
    """
    if (longest := max(map(len, stacks))) > MOST_KINDS:
        raise ValueError(f"layer_types has {longest} layers")
    for every in range(1, longest + 1 + last):
        if all(list(kinds) == kinds_of(len(kinds), every=every, last=last) for kinds in stacks):
            return every
    raise UsageError(
        f"The model has unsupported layer_types ({', '.join(map(str, stacks[0]))[:80]}). Choose a "
        f"model with {FULL} in every n-th layer, starting with the {'n-th' if last else 'first'}, and "
        f"{SLIDING} in all others.",
        code="model.unsupported-config",
    )
