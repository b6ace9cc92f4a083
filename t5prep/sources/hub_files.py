"""Choose the files of a Hub dataset that hold its rows: by its card's configs, or by the names of the files."""

import dataclasses
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from t5prep.errors import SourceError, did_you_mean
from t5prep.sources.grammar import Place
from t5prep.sources.http import Checksum
from t5prep.sources.raw import glob_pattern

_DATA = re.compile(r"\.(parquet|csv|tsv|jsonl?|ndjson|txt|source|target)(\.(gz|bz2|xz|zst))?$|\.zip$", re.IGNORECASE)
_ABOUT = re.compile(r"(^|/)(\.|README|LICEN[CS]E|dataset_infos?\.json|requirements)", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Listed:
    """Describe a file as the Hub lists it.

    `checksum` is `sha256:` for large files, `git:` (a blob's SHA-1) for small ones.
    """

    name: str
    bytes: int
    sha256: str
    checksum: str

    @classmethod
    def of(cls, sibling: Any) -> "Listed":
        """Return the file of huggingface_hub's RepoSibling, requested with files_metadata."""
        sha256 = sibling.lfs.sha256 if sibling.lfs else ""
        checksum = f"sha256:{sha256}" if sha256 else f"git:{sibling.blob_id}" if sibling.blob_id else ""
        return cls(sibling.rfilename, int(sibling.size or 0), sha256, checksum)

    def sound(self, path: Path) -> str:
        """Return the SHA-256 (hex) of a local copy, or "" when its bytes are not those that the Hub lists."""
        if path.stat().st_size != self.bytes:
            return ""
        checksum = Checksum(self.checksum, size=self.bytes)
        with path.open("rb") as copy:
            while chunk := copy.read(1 << 20):
                checksum.update(chunk)
        return "" if checksum.mismatch() else checksum.sha256


def is_script(repo: str, names: Iterable[str]) -> bool:
    """Check whether a dataset is a loading script: `name.py` at its top, as `datasets` before 4.0 ran it."""
    return f"{repo.partition('/')[2]}.py" in set(names)


def choose(
    files: Sequence[Listed], card: Any, *, place: Place, converted: bool = False, named: bool = False
) -> list[Listed]:
    """Return the files of the `#config` asked for, or of the only or default config.

    converted: this is the Hub's parquet branch, where each folder is a config
    named: files will be chosen by their names, so keep those that do not look like data, and ask for no folder

    Raises SourceError, with the names of the configs, when the config does not exist or one must be chosen.
    """
    configs = {str(config.get("config_name", "default")): config for config in _configs(card)}
    configs = {name: config for name, config in configs.items() if _picked(files, config)}
    data = [file for file in files if not _ABOUT.search(file.name) and (named or _DATA.search(file.name))]
    folders = sorted({file.name.partition("/")[0] for file in data if "/" in file.name})
    if configs:
        name = place.part or _default(configs)
        if name in configs:
            return _picked(files, configs[name])
        raise _which(place, list(configs))
    if place.part:
        below = [file for file in data if file.name.startswith(f"{place.part}/")]
        if below:
            return below
        raise _which(place, folders)
    loose = any("/" not in file.name for file in data)
    known = {"data", "default"} & set(folders)
    if len(folders) > 1 and not known and (converted or not (loose or named or _splits(folders))):
        raise _which(place, folders)
    if "default" in folders:
        return [file for file in data if file.name.startswith("default/")]
    return data


def _configs(card: Any) -> list[dict[str, Any]]:
    configs = (card.to_dict() if card else {}).get("configs") or []
    return [one for one in configs if isinstance(one, dict)]


def _default(configs: dict[str, dict[str, Any]]) -> str:
    """Return the config to use when the user names none, or "" when one must be named."""
    flagged = [name for name, config in configs.items() if config.get("default")]
    return (
        flagged[0]
        if flagged
        else "default"
        if "default" in configs
        else next(iter(configs))
        if len(configs) == 1
        else ""
    )


def _splits(folders: Iterable[str]) -> bool:
    return all(re.match(r"(partial-)?(train|valid|validation|dev|test)", folder) for folder in folders)


def _picked(files: Sequence[Listed], config: dict[str, Any]) -> list[Listed]:
    """Return the files that a card's config lists: by one pattern, by several, or by one list for each split."""
    listed = config.get("data_files") or []
    patterns: list[str] = []
    for one in listed if isinstance(listed, list) else [listed]:
        paths = one.get("path", []) if isinstance(one, dict) else one
        patterns += [paths] if isinstance(paths, str) else [str(path) for path in paths]
    folder = str(config.get("data_dir") or "").strip("./")
    prefix = f"{folder}/" if folder else ""
    if not patterns:
        return [file for file in files if prefix and file.name.startswith(prefix) and _DATA.search(file.name)]
    shapes = [glob_pattern(prefix + pattern.removeprefix("./")) for pattern in patterns]
    return [file for file in files if any(shape.fullmatch(file.name) for shape in shapes)]


def _which(place: Place, names: Sequence[str]) -> SourceError:
    if not names:
        return SourceError(f"{place.uri}: the dataset has no configs. Leave out #{place.part}.")
    some = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
    if place.part:
        return SourceError(
            f'{place.uri}: there is no config "{place.part}".{did_you_mean(place.part, names)} It has {some}.'
        )
    return SourceError(f"{place.uri} has several configs: {some}. Choose one: {place.uri}#{names[0]}")
