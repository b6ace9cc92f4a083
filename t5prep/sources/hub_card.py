"""Read the names of numbered classes in a Hub dataset's card."""

from collections.abc import Mapping
from typing import Any


def class_names(card: Mapping[str, Any], config: str = "") -> dict[str, tuple[str, ...]]:
    """Return the class names of each column that a Hub dataset's card describes (`dataset_info`), for a config of it.

    >>> feature = {"name": "label", "dtype": {"class_label": {"names": {"0": "neg", "1": "pos"}}}}
    >>> class_names({"dataset_info": {"features": [feature]}})
    {'label': ('neg', 'pos')}
    """
    infos = card.get("dataset_info") or []
    infos = infos if isinstance(infos, list) else [infos]
    named = [info for info in infos if isinstance(info, Mapping) and (not config or info.get("config_name") == config)]
    names_of: dict[str, tuple[str, ...]] = {}
    for feature in (named[0].get("features") if named else None) or []:
        kind = feature.get("dtype") if isinstance(feature, Mapping) else None
        label = kind.get("class_label") if isinstance(kind, Mapping) else None
        names = label.get("names") if isinstance(label, Mapping) and "name" in feature else None
        if isinstance(names, Mapping) and all(str(number).isdecimal() for number in names):
            ordered = sorted(names.items(), key=lambda item: int(item[0]))
            names_of[str(feature["name"])] = tuple(str(name) for _, name in ordered)
        elif isinstance(names, list):
            names_of[str(feature["name"])] = tuple(map(str, names))
    return names_of
