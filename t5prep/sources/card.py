"""Read from the card of a dataset its configs, with files and splits, and the names of classes.

A card is the YAML header of a README.md (on the Hub or in a folder), or a file .huggingface.yaml. It is interpreted
as `datasets` 5 does.
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from t5prep.errors import SourceError, did_you_mean
from t5prep.json_values import JSON, MALFORMED_ERRORS, JSONObject, whole_number
from t5prep.sources.raw import METADATA, glob_pattern, is_set_aside
from t5prep.sources.split_names import ADVICE

STANDALONE = ".huggingface.yaml"
INFOS = "dataset_infos.json"  # written by old versions of `datasets`, beside the card
# Keys of a config that have no influence on how its files are read.
_DESCRIPTIVE = {"config_name", "data_files", "data_dir", "default", "description", "version", "features", "drop_labels"}


@dataclasses.dataclass(frozen=True)
class Config:
    """A config of a card: the file patterns of each split, {} for all files below `folder`.

    parameters: options for reading the files, such as `sep` is_default: this config is read if none is named
    """

    name: str
    patterns: Mapping[str, Sequence[str]]
    folder: str = ""
    parameters: JSONObject = dataclasses.field(default_factory=dict)
    is_default: bool = False

    def files(self, names: Iterable[str], *, source: str) -> dict[str, str]:
        """Return each file of the config with its split, or "" if its name shows the split. Raises SourceError."""
        prefix = f"{self.folder}/" if self.folder else ""
        names = [name for name in names if name.startswith(prefix)]
        split_by_name = dict.fromkeys(names, "") if not self.patterns else {}
        for split, patterns in self.patterns.items():
            for pattern in patterns:
                pattern = prefix + pattern.removeprefix("./")
                matches = glob_pattern(pattern).fullmatch
                matched = [
                    name
                    for name in names
                    if matches(name)
                    and not is_set_aside(name, pattern)
                    and (name == pattern or not METADATA.search(name))
                ]
                if not matched and not set(pattern) & set("*?["):
                    raise SourceError(
                        f"The dataset card of {source} names {pattern}, which does not exist. {ADVICE}",
                        code="source.invalid-card",
                    )
                for name in matched:
                    if split_by_name.setdefault(name, split) != split:
                        raise SourceError(
                            f"The dataset card of {source} assigns {name} to two splits, {split_by_name[name]} and "
                            f"{split}. {ADVICE}",
                            code="source.invalid-card",
                        )
        return split_by_name


def configs(card: JSONObject, *, source: str) -> dict[str, Config]:
    """Return the configs of a card by name. Raises SourceError for a card that `datasets` refuses."""
    configs_by_name = {}
    for entry in _list(card.get("configs") or [], source=source, field="configs"):
        if not isinstance(entry, Mapping) or "config_name" not in entry:
            raise SourceError(
                f"The dataset card of {source} has a config without config_name. {ADVICE}", code="source.invalid-card"
            )
        name = str(entry["config_name"])
        configs_by_name[name] = Config(
            name,
            _patterns(entry.get("data_files"), source=source),
            str(entry.get("data_dir") or "").strip("./"),
            {key: value for key, value in entry.items() if key not in _DESCRIPTIVE},
            is_default=name == "default" or bool(entry.get("default")),
        )
    return configs_by_name


def default_config(configs_by_name: Mapping[str, Config], *, source: str) -> str:
    """Return the name of the config to read if the user names none, "" if one must be named. Raises SourceError.

    >>> default_config(configs({"configs": [{"config_name": "a"}, {"config_name": "default"}]}, source="x"), source="x")
    'default'
    """
    defaults = [name for name, config in configs_by_name.items() if len(configs_by_name) == 1 or config.is_default]
    if len(defaults) > 1:
        raise SourceError(
            f"The dataset card of {source} has several default configs: {', '.join(defaults)}. Choose "
            f"one: {source}#CONFIG",
            code="source.ambiguous-config",
        )
    return next(iter(defaults), "")


def choose(card: JSONObject, part: str, *, source: str) -> Config | None:
    """Return the config named `part`, or the default one; None if the card has no configs. Raises SourceError."""
    configs_by_name = configs(card, source=source)
    if not configs_by_name:
        return None
    name = part or default_config(configs_by_name, source=source)
    if name not in configs_by_name:
        raise several(source, part, list(configs_by_name))
    return configs_by_name[name]


def several(source: str, part: str, names: Sequence[str]) -> SourceError:
    """Return the error for a missing config, or for several configs of which one must be chosen."""
    if not names:
        return SourceError(f"{source} has no configs. Remove #{part}.", code="source.unknown-config")
    name_list = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
    if part:
        return SourceError(
            f'{source} has no config "{part}".{did_you_mean(part, names)} Choose one of: {name_list}.',
            code="source.unknown-config",
        )
    return SourceError(
        f"{source} has several configs: {name_list}. Choose one: {source}#{names[0]}", code="source.ambiguous-config"
    )


def read(readme: Path | None, standalone: Path | None = None) -> JSONObject:
    """Return the metadata of a README.md and of a .huggingface.yaml, which has precedence. Raises SourceError for invalid YAML."""
    facts: dict[str, JSON] = {}
    if readme and (text := _text(readme)).startswith("---") and ("configs" in text or "dataset_info" in text):
        facts |= _parsed(text, readme)
    if standalone and (text := _text(standalone)).strip():
        facts |= _parsed(f"---\n{text}\n---\n", standalone)
    return facts


def with_infos(card: JSONObject, path: Path) -> JSONObject:
    """Return the card with the classes of a dataset_infos.json, for configs that the card does not describe. Raises SourceError.

    As in `datasets`, the only config of such a file is the default one, whatever its name.
    """
    try:
        described = {str(config): dict(info["features"] or {}) for config, info in json.loads(_text(path)).items()}
        classes_of(described)
    except MALFORMED_ERRORS as error:
        raise SourceError(
            f"{path} cannot be read ({error!r:.80}), but it may name the classes. Remove the file.",
            code="source.invalid-card",
        ) from None
    if len(described) == 1:
        described = {"default": next(iter(described.values()))}
    card_infos = _infos(card)
    infos: list[JSONObject] = [
        {"config_name": config, "features": features}
        for config, features in described.items()
        if config not in card_infos
    ]
    return {**card, "dataset_info": [*infos, *card_infos.values()]}


def _infos(card: JSONObject) -> dict[str, JSONObject]:
    """Return the entries of `dataset_info` in a card, by config name."""
    infos = card.get("dataset_info") or []
    infos = infos if isinstance(infos, list) else [infos]
    return {str(info.get("config_name", "default")): info for info in infos if isinstance(info, Mapping)}


def classes_of(features: JSON, name: str = "") -> dict[str, tuple[str, ...]]:
    """Return the class names in features of `datasets` in their JSON form, by the path of the column.

    Elements of a list have the path of the list. Fields of an object have the path of the object and their own name.

    >>> classes_of({"meta": {"kind": [{"names": ["neg", "pos"], "_type": "ClassLabel"}]}})
    {'meta.kind': ('neg', 'pos')}
    """
    # A list is described as [{…}], or as {"feature": {…}, "_type": "List"}.
    if isinstance(features, list):
        return classes_of(features[0], name) if features else {}
    if not isinstance(features, Mapping):
        return {}
    if not isinstance(kind := features.get("_type"), str):
        inner = [classes_of(feature, f"{name}.{field}" if name else str(field)) for field, feature in features.items()]
        return {path: names for classes in inner for path, names in classes.items()}
    if "feature" in features:
        return classes_of(features["feature"], name)
    names = features.get("names")
    return {name: tuple(map(str, names))} if name and names and kind == "ClassLabel" and isinstance(names, list) else {}


def _as_json(feature: JSON) -> JSON:
    """Return the features in a card in the form for `classes_of`; {} for unknown forms."""
    if isinstance(feature, list):
        return {
            column["name"]: _as_json(column) for column in feature if isinstance(column, Mapping) and "name" in column
        }
    if not isinstance(feature, Mapping):
        return {}
    if isinstance(label := feature.get("class_label"), Mapping):
        names = label.get("names")
        if isinstance(names, Mapping) and None not in map(whole_number, map(str, names)):
            names = [name for _, name in sorted(names.items(), key=lambda item: int(item[0]))]
        return {"names": names, "_type": "ClassLabel"}
    inner = next(
        (feature[key] for key in ("dtype", "list", "sequence", "large_list", "struct") if feature.get(key)), None
    )
    return _as_json(inner)


def _text(path: Path) -> str:
    """Return the text of a file; invalid bytes are replaced."""
    return path.read_text(encoding="utf-8", errors="replace")


def _parsed(text: str, path: Path) -> dict[str, JSON]:
    """Return the metadata of a card's text. Raises SourceError."""
    from huggingface_hub import DatasetCard

    try:
        facts: dict[str, JSON] = DatasetCard(text).data.to_dict()  # type: ignore[no-untyped-call]
        return facts
    except Exception as error:  # PyYAML and huggingface_hub raise many types
        reason = " ".join(str(error).split())[:120]
        raise SourceError(
            f"The metadata of {path} cannot be read ({reason}). {ADVICE}", code="source.invalid-card"
        ) from None


def class_names(card: JSONObject, config: str = "") -> dict[str, tuple[str, ...]]:
    """Return the class names of each column that a card describes for a config, in `dataset_info` or in the config.

    >>> feature = {"name": "label", "dtype": {"class_label": {"names": {"0": "neg", "1": "pos"}}}}
    >>> class_names({"dataset_info": {"features": [feature]}})
    {'label': ('neg', 'pos')}
    """
    by_config = _infos(card)
    if not config and len(by_config) == 1:
        config = next(iter(by_config))
    info = by_config.get(config or "default", {})
    configs = card.get("configs")
    listed = (
        [entry for entry in configs if isinstance(entry, Mapping) and "features" in entry]
        if isinstance(configs, list)
        else []
    )
    config_features = [entry["features"] for entry in listed if str(entry.get("config_name")) == (config or "default")]
    features = (config_features[0] if config_features else info.get("features")) or []
    return classes_of(features if isinstance(features, Mapping) else _as_json(features))


def _patterns(listed: JSON, *, source: str) -> dict[str, list[str]]:
    """Return the file patterns of each split in `data_files`. Files without a split belong to train."""
    if listed is None:
        return {}
    if isinstance(listed, str):
        return {"train": [listed]}
    entries = _list(listed, source=source, field="data_files")
    names = [pattern for pattern in entries if isinstance(pattern, str)]
    if len(names) == len(entries):
        return {"train": names} if names else {}
    patterns: dict[str, list[str]] = {}
    for listed_entry in entries:
        entry = listed_entry if isinstance(listed_entry, Mapping) else {}
        paths = entry.get("path")
        if not isinstance(paths, str | list) or set(entry) != {"split", "path"} or str(entry["split"]) in patterns:
            raise SourceError(
                f"The dataset card of {source} has an entry in data_files that cannot be read: {listed_entry!r:.80}. {ADVICE}",
                code="source.invalid-card",
            )
        patterns[str(entry["split"])] = [paths] if isinstance(paths, str) else [str(path) for path in paths]
    return patterns


def _list(value: JSON, *, source: str, field: str) -> list[JSON]:
    """Return a value of a card, after checking that it is a list. Raises SourceError."""
    if not isinstance(value, list):
        raise SourceError(
            f"The field {field} in the dataset card of {source} is not a list: {value!r:.60}. {ADVICE}",
            code="source.invalid-card",
        )
    return value
