"""Compare the settings of a run with the built-in recipes: find the nearest recipe, and what differs from it."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from t5prep.errors import UsageError
from t5prep.train.settings import config as configs
from t5prep.train.settings.config import TrainConfig

# Paths of a run, which no recipe sets, are left out of the comparison.
_ITS_OWN = frozenset({"data", "out", "tokenizer"})


class Nearest(NamedTuple):
    """Hold the recipe that a run is nearest to ("" for the defaults), and the settings that differ.

    `differs` has (setting, the recipe's value, the run's value).
    """

    name: str
    differs: list[tuple[str, Any, Any]]


def nearest_recipe(settings: Mapping[str, Any]) -> Nearest:
    """Return the built-in recipe that differs least from a run's settings, given as in its train.json.

    >>> nearest_recipe({**json.loads(configs.dumps(TrainConfig())), "batch": 64}).differs
    [('batch', 128, 64)]
    """
    candidates = [Nearest("", _differing(settings, {}))]
    for name in configs.recipes():
        try:
            recipe = configs.read_recipe(name)
        except UsageError:
            continue
        candidates.append(Nearest(name, _differing(settings, recipe)))
    return min(candidates, key=lambda candidate: len(candidate.differs))


def _differing(settings: Mapping[str, Any], recipe: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    usual = json.loads(json.dumps(dataclasses.asdict(TrainConfig()))) | dict(recipe)
    known = (name for name in usual if name in settings and name not in _ITS_OWN)
    return [(name, usual[name], settings[name]) for name in known if usual[name] != settings[name]]
