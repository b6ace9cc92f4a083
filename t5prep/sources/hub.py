"""Read datasets of the Hugging Face Hub through huggingface_hub, pinned to a commit; large ones are streamed by ranges.

huggingface_hub lists files, forms addresses and finds the user's token. `t5prep.sources.http` transfers the bytes.
`hf_hub_download` would restart from zero when a process dies, and it does not verify the SHA-256 that the Hub
publishes.
"""

import dataclasses
import io
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, TypeVar, cast

import requests

from t5prep.errors import SourceError
from t5prep.io.ranges import RangedFile
from t5prep.json_values import JSONObject
from t5prep.sources import archives, card, local, split_names
from t5prep.sources.http import (
    STATUSES,
    Broken,
    Download,
    Refused,
    Retries,
    Session,
    connection_errors,
    digests,
    fetch,
    get,
)
from t5prep.sources.raw import METADATA, RawFile, Resolved, SourceLocation, checked, is_requested, is_set_aside

if TYPE_CHECKING:
    from huggingface_hub.hf_api import DatasetInfo, RepoSibling

T = TypeVar("T")
PARQUET = "refs/convert/parquet"  # branch of the Hub's Parquet conversions, mainly of script datasets
STREAM_BYTES = 256 << 20  # larger corpora, or those with more files, are streamed
STREAM_FILES = 64
_TOKEN_ADVICE = (
    "Make a token at https://huggingface.co/settings/tokens, then `hf auth login`, "
    "or put it in the environment variable HF_TOKEN."
)


_DATA = re.compile(
    r"\.(parquet|csv|tsv|tab|jsonl?|ndjson|txt|text|conll|source|target)(\.(gz|bz2|xz|zst))?$", re.IGNORECASE
)


@dataclasses.dataclass(frozen=True)
class Listed:
    """A file in the Hub's listing.

    `checksum` is `sha256:` for large files, and `git:` (the SHA-1 of a git blob) for small ones.
    """

    name: str
    bytes: int
    sha256: str
    checksum: str

    @classmethod
    def of(cls, sibling: "RepoSibling") -> "Listed":
        """Return the file of a RepoSibling of huggingface_hub, which was requested with files_metadata."""
        sha256 = sibling.lfs.sha256 if sibling.lfs else ""
        checksum = f"sha256:{sha256}" if sha256 else f"git:{sibling.blob_id}" if sibling.blob_id else ""
        return cls(sibling.rfilename, int(sibling.size or 0), sha256, checksum)

    def sound(self, path: Path) -> str:
        """Return the SHA-256 (hex) of a local copy, or "" if its bytes differ from the Hub's listing."""
        if path.stat().st_size != self.bytes:
            return ""
        sha256, wrong_checksum = digests(path, self.checksum)
        return "" if wrong_checksum else sha256


def resolve(
    location: SourceLocation, *, include: Sequence[str], progress: bool | None, ignore_card: bool = False
) -> Resolved:
    """Return the data files of a dataset (of its `#config`) at one commit. Raises SourceError.

    ignore_card: read no configs of the card, unless the source names one, because the user assigns files to splits
    """
    commit = _commit(location, location.revision or None)
    facts = commit.card
    names = facts.get("license") or ""
    licence = ", ".join(map(str, names)) if isinstance(names, list) else str(names)
    citation = _citation(commit.info)
    converted = location.revision == PARQUET
    script_name = f"{location.name.partition('/')[2]}.py"  # at the top, where `datasets` before 4.0 ran it
    if not location.revision and any(file.name == script_name for file in commit.files):
        script, commit = commit, _commit(location, PARQUET, absent=commit)
        converted = commit is not script
    about = {file.name: file for file in commit.files if file.name in (card.STANDALONE, card.INFOS) and not converted}
    if card.STANDALONE in about:
        standalone, _ = _fetch(location, about[card.STANDALONE], commit.sha, progress=progress)
        facts = {**facts, **card.read(None, standalone)}
    if card.INFOS in about:
        facts = card.with_infos(facts, _fetch(location, about[card.INFOS], commit.sha, progress=progress)[0])
    of_main = {} if converted or (ignore_card and not location.part) else facts  # the Parquet branch has other files
    chosen = choose(
        commit.files, of_main, location=location, converted=converted, has_name_filter=bool(include) or ignore_card
    )
    wanted_files = [file for file in chosen.files if archives.is_archive(file.name) or is_requested(file.name, include)]
    far = sum(file.bytes for file in wanted_files) > STREAM_BYTES or len(wanted_files) > STREAM_FILES
    files: list[RawFile] = []
    offered = [file.name for file in chosen.files]
    for file in wanted_files:
        split = chosen.splits.get(file.name, "")
        if far and not archives.is_archive(file.name):
            path = f"hf://datasets/{location.name}@{commit.sha}/{file.name}"
            files.append(RawFile(file.name, path, file.bytes, sha256=file.sha256, checksum=file.checksum, split=split))
            continue
        local_path, sha256 = _fetch(location, file, commit.sha, progress=progress)
        expanded_files, names = local.expand(
            local_path, name=file.name, include=include, sha256=sha256, checksum=file.checksum
        )
        files += [dataclasses.replace(raw_file, split=split) for raw_file in expanded_files]
        offered += names
    raw_files = checked(files, location.uri, include=include, offered=offered)
    if any("/partial-" in file.name for file in raw_files):
        print(f"The Hub converted only a part of {location.uri} to Parquet (partial-...).", file=sys.stderr)
    return Resolved(
        location.uri,
        commit.sha,
        raw_files,
        licence=licence,
        citation=citation,
        class_names=card.class_names(facts, chosen.config.name if chosen.config else location.part),
        parameters=chosen.config.parameters if chosen.config else {},
        base=chosen.base,
    )


class _Commit(NamedTuple):
    """The Hub's description of a dataset at one commit."""

    info: "DatasetInfo"
    sha: str
    files: list[Listed]
    card: JSONObject


def _commit(location: SourceLocation, revision: str | None, *, absent: _Commit | None = None) -> _Commit:
    """Return the description of a dataset at a revision. `absent` is returned if there is no such revision."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RevisionNotFoundError

    api = HfApi(endpoint=_endpoint())
    try:
        info = _call(
            lambda: api.dataset_info(location.name, revision=revision, files_metadata=True, timeout=30), location
        )
    except RevisionNotFoundError:
        if absent is not None:
            return absent
        raise SourceError(
            f"{location.uri} has no revision {revision}. Name a branch, a tag or a commit.",
            code="hub.unknown-revision",
        ) from None
    if not info.sha or info.siblings is None:
        raise SourceError(
            f"The Hub does not list the files of {location.uri}. Check that HF_ENDPOINT is the address of a Hub.",
            code="hub.invalid-response",
        )
    if info.gated:  # everyone may list the files, but this user may not read them
        _call(lambda: api.auth_check(location.name, repo_type="dataset"), location)
    facts = info.card_data.to_dict() if info.card_data else {}  # type: ignore[no-untyped-call]
    return _Commit(info, info.sha, [Listed.of(file) for file in info.siblings], facts)


def _fetch(location: SourceLocation, file: Listed, revision: str, *, progress: bool | None) -> tuple[Path, str]:
    """Return the path of a file and its SHA-256, from the Hub's own cache if the copy there is intact, otherwise downloaded."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    cached = try_to_load_from_cache(location.name, file.name, revision=revision, repo_type="dataset")
    if isinstance(cached, str) and (sha256 := file.sound(Path(cached))):
        return Path(cached), sha256
    url = _url(location.name, file.name, revision)
    download = Download(lambda: url, file.name, file.checksum, file.bytes, build_hf_headers(), progress)
    try:
        blob = fetch(f"hf:{location.name}/{file.name} {file.checksum or revision}", download)
    except Refused as refused:
        raise _refusal(location, refused.status) from None
    return blob.path, blob.sha256


def _call(ask: Callable[[], T], location: SourceLocation) -> T:
    """Return the result of `ask`, a call of the Hub's API, with retries. Raises SourceError, or RevisionNotFoundError."""
    from huggingface_hub import errors

    retries = Retries(location.uri)
    while True:
        try:
            return ask()
        except errors.RevisionNotFoundError:
            raise
        except errors.GatedRepoError:
            raise SourceError(
                f"{location.uri} is gated. Accept its terms at https://huggingface.co/datasets/{location.name}. {_TOKEN_ADVICE}",
                code="hub.gated-repository",
            ) from None
        except errors.RepositoryNotFoundError:
            raise _refusal(location, 404) from None
        except errors.HfHubHTTPError as error:
            status = error.response.status_code
            if status not in STATUSES:
                raise _refusal(location, status) from None
            retries.wait(f"the Hub answers {status}", headers=error.response.headers)
        except errors.OfflineModeIsEnabled:
            raise SourceError(
                f"{location.uri} needs the network, but HF_HUB_OFFLINE forbids it. Unset HF_HUB_OFFLINE.",
                code="hub.offline-mode",
            ) from None
        except errors.HTTPError:  # type: ignore[attr-defined]  # httpx's, of whichever httpx the Hub's client uses
            retries.wait("the Hub cannot be reached, or does not answer in time")
        except ValueError:
            raise SourceError(
                f"The Hub does not answer with JSON for {location.uri}. Check that HF_ENDPOINT is the address of a Hub.",
                code="hub.invalid-response",
            ) from None


def _refusal(location: SourceLocation, status: int) -> SourceError:
    """Return the error that says why the Hub answers a request with this HTTP status, and what to do."""
    from huggingface_hub import get_token

    if status in (401, 403):
        return SourceError(
            f"{location.uri}: the Hub denies access ({status}): the token is wrong, expired, or lacks read permission. "
            f"{_TOKEN_ADVICE}",
            code="hub.access-denied",
        )
    if status == 404 and get_token():
        return SourceError(
            f"{location.uri}: the Hub has no such dataset, or the token cannot see it. Check the name and the token's permissions.",
            code="hub.not-found",
        )
    if status == 404:
        return SourceError(
            f"{location.uri}: the Hub has no such dataset, or it is private. Check its name, or log in. {_TOKEN_ADVICE}",
            code="hub.not-found",
        )
    return SourceError(f"{location.uri}: the Hub answers {status}. Run this again later.", code="hub.unavailable")


def _citation(info: "DatasetInfo") -> str:
    """Return the card's citation, or the dataset's address and the papers in its tags."""
    address = f"https://huggingface.co/datasets/{info.id}"
    cited = [
        f"https://{kind.replace('arxiv', 'arxiv.org/abs').replace('doi', 'doi.org')}/{name}"
        for kind, _, name in (str(tag).partition(":") for tag in info.tags or [])
        if kind in ("arxiv", "doi")
    ]
    return (info.citation or "").strip() or " ".join([address, *cited])


class Chosen(NamedTuple):
    """The files of a config, their splits in the card, and the config (None: the card has none).

    `base` is the folder below which names show splits.
    """

    files: list[Listed]
    splits: dict[str, str]
    config: card.Config | None = None
    base: str = ""


def choose(
    files: Sequence[Listed],
    facts: JSONObject,
    *,
    location: SourceLocation,
    converted: bool = False,
    has_name_filter: bool = False,
) -> Chosen:
    """Return the files of the `#config` in a source, or of the only or default config.

    facts: the card's metadata converted: these are files of the Hub's Parquet branch, where each folder is a config
    has_name_filter: files are chosen by name later, so all are returned, and no config must be named

    Raises SourceError, with the names of the configs, if the config does not exist or if one must be chosen.
    """
    visible = [file for file in files if not (is_set_aside(file.name) or METADATA.search(file.name))]
    data = [file for file in visible if has_name_filter or _is_data(file.name)]
    config = card.choose(facts, location.part, source=location.uri)
    if config is not None:
        splits = config.files([file.name for file in (files if config.patterns else data)], source=location.uri)
        return Chosen([file for file in files if file.name in splits], splits, config, config.folder)
    # Without configs in the card, each folder at the top may be a config.
    folders = sorted({file.name.partition("/")[0] for file in data if "/" in file.name})
    if location.part:
        below = [file for file in data if file.name.startswith(f"{location.part}/")]
        if below:
            return Chosen(below, {}, base=location.part)
        if location.part != "default":
            raise card.several(location.uri, location.part, folders)
    loose = any("/" not in file.name for file in data)
    default_folders = {"data", "default"} & set(folders)
    if (
        len(folders) > 1
        and not default_folders
        and (converted or not (loose or has_name_filter or _tell_splits(folders)))
    ):
        raise card.several(location.uri, location.part, folders)
    if "default" in folders:
        return Chosen([file for file in data if file.name.startswith("default/")], {}, base="default")
    return Chosen(data, {})


def _is_data(name: str) -> bool:
    """Check whether a name looks like a file with rows."""
    return bool(_DATA.search(name)) or archives.is_archive(name)


def _tell_splits(folders: Sequence[str]) -> bool:
    """Check whether the name of any folder shows a split."""
    return bool(split_names.find({folder: f"{folder}/0" for folder in folders}).split_by_name)


# Seekable reading of a file of the Hub by ranges.
# HfFileSystem is not used. In each thread it asks the Hub's API for the repository, for the listing of each folder,
# and for the address of each range. It also accepts a range of another length. Here the Hub is asked once for each
# file, and then only the storage host. So hundreds of workers do not reach the Hub's rate limits.

_SMALL = 32 << 20  # maximum size of a file read as a whole, if its host has no ranges
_FILE = re.compile(r"hf://datasets/(?P<repo>[^@]+)@(?P<revision>[^/]+)/(?P<file>.+)")
_ADVICE = "Set HF_TOKEN in the environment of every worker to a token that may read it."


def open_range(path: str, *, size: int, ahead: int) -> BinaryIO:
    """Return a seekable file of `size` bytes: `hf://datasets/OWNER/NAME@COMMIT/FILE`.

    Each request costs a round trip, so it asks for at least `ahead` bytes. Raises SourceError here and while reading.
    Broken connections, 429 and 5xx are retried.
    """
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    match = _FILE.fullmatch(path)
    assert match, "resolve makes such names"
    url = _url(match["repo"], match["file"], match["revision"])
    return cast(BinaryIO, io.BufferedReader(_Ranges(url, build_hf_headers(), display_name=path, size=size), ahead))


def _url(repo: str, file: str, revision: str) -> str:
    """Return the address of a file in a dataset."""
    from huggingface_hub import hf_hub_url

    return hf_hub_url(repo, file, repo_type="dataset", revision=revision, endpoint=_endpoint())


def _endpoint() -> str | None:
    """Return the Hub's address in HF_ENDPOINT, or None for the default."""
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or None


class _Ranges(RangedFile):
    """A file that is read by one request for each range, sent to the storage host while its signed address is valid."""

    def __init__(self, url: str, headers: dict[str, str], *, display_name: str, size: int):
        self._url, self._headers, self._display_name = url, headers, display_name
        self._session = Session()  # one connection for all reads
        self._redirected = ""
        self._whole = b""  # the content of a small file whose host has no ranges
        super().__init__(size)

    def range(self, start: int, length: int) -> bytes:
        """Return exactly these bytes. Raises SourceError."""
        retries = Retries(self._display_name)
        while True:
            if self._whole:
                return self._whole[start : start + length]
            response = self._get(f"bytes={start}-{start + length - 1}", retries)
            is_whole = response.status_code == 200 and response.headers.get("Content-Length") == str(self._size)
            # A host without ranges answers with the whole file.
            if self._size <= _SMALL and is_whole:
                self._whole = self._content(response, self._size, retries)
                continue
            if response.status_code != 206:
                response.close()
                raise SourceError(
                    f"The host of {self._display_name} does not send parts of the file. Download the file, and name the "
                    "local copy.",
                    code="source.unsupported-host",
                )
            range_match = re.fullmatch(
                rf"bytes {start}-{start + length - 1}/(\d+)", response.headers.get("Content-Range", "")
            )
            # Another range, or another version of the file, would otherwise be read as data.
            if not range_match or int(range_match.group(1)) != self._size:
                response.close()
                raise SourceError(
                    f"{self._display_name} changed: it no longer has the {self._size:,} bytes that were listed. Run the "
                    "command again from the start.",
                    code="source.concurrent-change",
                )
            if data := self._content(response, length, retries):
                return data

    def _content(self, response: requests.Response, length: int, retries: Retries) -> bytes:
        """Return a body of this length. If fewer bytes arrive, wait for the next try and return b""."""
        try:
            with connection_errors(), response:
                data = response.raw.read(length, decode_content=False)
        except Broken as broken:
            retries.wait(str(broken))
            return b""
        if len(data) == length:
            return bytes(data)
        retries.wait("less came than was asked for")
        return b""

    def close(self) -> None:
        self._session.close()
        super().close()

    def _get(self, byte_range: str, retries: Retries) -> requests.Response:
        """Return the response to a range request, from the last redirect if its signed address is still valid."""
        if self._redirected:
            try:
                return self._ask(self._redirected, {"Range": byte_range}, retries)
            except Refused:
                self._redirected = ""  # signed addresses expire: request a new one
        try:
            response = self._ask(self._url, {**self._headers, "Range": byte_range}, retries)
        except Refused as refused:
            if refused.status not in (401, 403):
                raise
            raise SourceError(f"{refused} {_ADVICE}", code="hub.access-denied") from None
        self._redirected = response.url if response.history else ""
        return response

    def _ask(self, url: str, headers: dict[str, str], retries: Retries) -> requests.Response:
        """Return the response to one request."""
        return get(url, display_name=self._display_name, headers=headers, retries=retries, session=self._session)
