"""Datasets of the Hub, through the real huggingface_hub, from a host that speaks its API and redirects large files."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from raised import raises
from servers.http import Answer, Fault
from servers.internet import Internet

from t5prep.errors import SourceError
from t5prep.sources import Resolved, hub, open_random, open_stream, resolve


def parquet(rows: int = 1000, start: int = 0) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table({"text": [f"row {i}" for i in range(start, start + rows)]}), buffer, row_group_size=100)
    return buffer.getvalue()


GLUE = {
    "README.md": b"---\nlicense: other\n---",
    ".gitattributes": b"*.parquet filter=lfs",
    "sst2/train-00000-of-00001.parquet": parquet(),
    "sst2/test-00000-of-00001.parquet": parquet(300),
    "mrpc/train-00000-of-00001.parquet": parquet(200),
}
CARD = {
    "license": "other",
    "configs": [
        {
            "config_name": name,
            "data_files": [{"split": split, "path": f"{name}/{split}-*"} for split in ("train", "test")],
        }
        for name in ("mrpc", "sst2")
    ],
}


@pytest.fixture
def glue(internet: Internet) -> str:
    return internet.hub.publish("nyu-mll/glue", GLUE, card=CARD)


def test_a_config_of_the_card_is_pinned_to_its_commit(internet: Internet, glue: str):
    resolved = resolve(f"{glue}#sst2")
    assert [file.name for file in resolved.files] == [
        "sst2/test-00000-of-00001.parquet",
        "sst2/train-00000-of-00001.parquet",
    ]
    assert resolved.revision == internet.hub.sha("nyu-mll/glue")
    assert resolved.licence == "other"
    assert resolved.citation == "https://huggingface.co/datasets/nyu-mll/glue https://arxiv.org/abs/1910.10683"
    assert all(file.checksum == f"sha256:{file.sha256}" for file in resolved.files)
    assert pq.read_table(open_random(resolved.files[1])).num_rows == 1000


def test_a_config_must_be_chosen_and_must_exist(internet: Internet, glue: str):
    with raises(SourceError, "source.ambiguous-config", "hf:nyu-mll/glue", "mrpc", "mrpc, sst2"):
        resolve(glue)
    with raises(SourceError, "source.unknown-config", "sst"):
        resolve(f"{glue}#sst")


def test_the_default_config_is_taken(internet: Internet):
    card = {
        "configs": [
            {"config_name": "one", "data_files": "a/*.csv", "default": True},
            {"config_name": "two", "data_dir": "b"},
        ]
    }
    source = internet.hub.publish("a/b", {"a/x.csv": b"1", "b/y.csv": b"2"}, card=card)
    assert [file.name for file in resolve(source).files] == ["a/x.csv"]
    assert [file.name for file in resolve(f"{source}#two").files] == ["b/y.csv"]


def test_files_without_a_card_are_those_that_look_like_data(internet: Internet):
    source = internet.hub.publish(
        "a/b", {"data/train.jsonl": b"{}", "README.md": b"", "LICENSE.txt": b"", "plot.png": b""}
    )
    assert [file.name for file in resolve(source).files] == ["data/train.jsonl"]


def test_a_dataset_that_is_a_script_is_read_from_the_parquet_branch(internet: Internet):
    converted = {"v1/train/0000.parquet": parquet(), "v1/validation/0000.parquet": parquet(50)}
    source = internet.hub.publish(
        "dumitrescustefan/diacritic",
        {"diacritic.py": b"import datasets", "data/x.bin": b"?"},
        branches={hub.PARQUET: converted},
        card={"license": "mit", "configs": [{"config_name": "v1", "data_files": "data/*"}]},
    )
    resolved = resolve(source)
    assert [file.name for file in resolved.files] == list(converted)
    assert resolved.files == resolve(f"{source}#v1").files == resolve(f"{source}@{hub.PARQUET}#v1").files
    assert resolved.revision == internet.hub.sha("dumitrescustefan/diacritic", hub.PARQUET)
    assert resolved.licence == "mit"


def test_a_script_without_parquet_falls_back_to_its_data(internet: Internet):
    source = internet.hub.publish("a/b", {"b.py": b"import datasets", "part-0.json.gz": b"gz"})
    assert [file.name for file in resolve(source).files] == ["part-0.json.gz"]


def resolved_by(source: str, *, stream: bool, include: str = "") -> Resolved:
    """A source that is read by range, or downloaded, whatever its size."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(hub, "STREAM_BYTES", -1 if stream else 1 << 60)
        return resolve(source, include=include)


def test_a_large_corpus_is_not_downloaded_but_read_by_range(internet: Internet, monkeypatch: pytest.MonkeyPatch):
    files = {f"data/train-{i:05}.parquet": parquet(start=i * 1000) for i in range(hub.STREAM_FILES + 1)}
    source = internet.hub.publish("allenai/big", files)
    resolved = resolve(source)
    sha = internet.hub.sha("allenai/big")
    assert resolved.files[3].path == f"hf://datasets/allenai/big@{sha}/data/train-00003.parquet"
    assert internet.server.requests_of("/resolve/") == internet.server.requests_of("/lfs/") == []
    with open_random(resolved.files[3]) as stream:
        assert pq.ParquetFile(stream).read_row_group(7)["text"][0].as_py() == "row 3700"
    assert all("range" in request.headers for request in internet.server.requests_of("/lfs/"))
    assert len(internet.server.requests_of("/resolve/")) == 1  # the signed address is used for all further reads


def test_streamed_and_downloaded_bytes_are_the_same(internet: Internet, glue: str):
    near, far = resolved_by(f"{glue}#sst2", stream=False), resolved_by(f"{glue}#sst2", stream=True)
    assert [(a.name, a.bytes, a.sha256) for a in near.files] == [(b.name, b.bytes, b.sha256) for b in far.files]
    for near_file, far_file in zip(near.files, far.files, strict=True):
        assert open_stream(near_file).read() == open_stream(far_file).read() == GLUE[near_file.name]


def test_faults_while_reading_by_range_pass(internet: Internet, glue: str):
    (file,) = resolved_by(f"{glue}#sst2", include="train-*", stream=True).files
    internet.server.faults = [
        Fault("/resolve/", answer=Answer(429, {"Retry-After": "0"})),
        Fault("/lfs/", cut=100),
        Fault("/lfs/", answer=Answer(503)),
        Fault("/lfs/", answer=Answer(403)),  # the signed address grew old
    ]
    assert open_random(file).read() == GLUE[file.name]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (Answer(body=b"whole"), ("source.unsupported-host",)),
        (Answer(206, {"Content-Range": "bytes 0-4/5"}, b"wrong"), ("source.concurrent-change",)),
        (Answer(404), ("source.request-refused",)),
    ],
)
def test_a_host_that_sends_something_else_is_not_believed(
    answer: Answer, says: tuple[str, ...], internet: Internet, glue: str
):
    (file,) = resolved_by(f"{glue}#sst2", include="train-*", stream=True).files
    internet.server.faults = [Fault("/lfs/", answer=answer, times=9)]
    with raises(SourceError, *says):
        open_random(file).read(10)


def test_a_cut_is_continued_and_a_wrong_sha256_is_said(internet: Internet, glue: str):
    internet.server.faults = [Fault("sst2/train", method="GET"), Fault("/lfs/", cut=2000)]
    assert len(resolve(f"{glue}#sst2").files) == 2
    assert [
        request.headers["range"] for request in internet.server.requests_of("/lfs/") if "range" in request.headers
    ] == ["bytes=2000-"]
    internet.server.faults = [Fault("/lfs/", spoil=True, times=9)]
    with raises(SourceError, "source.damaged-download"):
        resolve(f"{glue}#mrpc")


def test_small_files_are_checked_by_their_git_names(internet: Internet):
    source = internet.hub.publish("a/b", {"train.csv": b"a,b\n"})
    internet.server.faults = [Fault("train.csv", spoil=True, times=9)]
    with raises(SourceError, "source.damaged-download"):
        resolve(source)
    internet.server.faults = []
    (file,) = resolve(source).files
    assert open_stream(file).read() == b"a,b\n"


def test_what_the_hubs_own_cache_has_is_used(internet: Internet, glue: str):
    import huggingface_hub

    path = huggingface_hub.hf_hub_download(
        "nyu-mll/glue",
        "mrpc/train-00000-of-00001.parquet",
        repo_type="dataset",
        endpoint=internet.environment["HF_ENDPOINT"],
    )
    (file,) = resolve(f"{glue}#mrpc").files
    assert Path(file.path).samefile(path)
    Path(path).resolve().chmod(0o644)
    Path(path).write_bytes(b"spoiled")
    (file,) = resolve(f"{glue}#mrpc").files
    assert open_stream(file).read() == GLUE[file.name]


def test_private_and_gated_datasets_want_the_users_own_token(internet: Internet, monkeypatch: pytest.MonkeyPatch):
    private = internet.hub.publish("me/private", {"a.csv": b"1"}, private=True)
    gated = internet.hub.publish("they/gated", {"a.csv": b"1"}, gated=True)
    with raises(SourceError, "hub.not-found"):
        resolve(private)
    for stream in (True, False):
        with raises(SourceError, "hub.gated-repository", "they/gated"):
            resolved_by(gated, stream=stream)
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with raises(SourceError, "hub.access-denied"):
        resolve(private)
    monkeypatch.setenv("HF_TOKEN", internet.hub.token)
    for source in (private, gated):
        (file,) = resolved_by(source, stream=True).files
        assert open_stream(file).read() == b"1"
    assert all("authorization" not in request.headers for request in internet.server.requests_of("localhost"))


def test_what_does_not_exist_is_said(internet: Internet, glue: str):
    with raises(SourceError, "hub.not-found"):
        resolve("hf:no/such")
    with raises(SourceError, "hub.unknown-revision", "v9"):
        resolve(f"{glue}@v9")


def test_faults_of_the_api_pass(internet: Internet, glue: str):
    internet.server.faults = [
        Fault("/api/datasets", answer=Answer(429, {"Retry-After": "0"})),
        Fault("/api/datasets", answer=Answer(503)),
        Fault("/api/datasets", cut=10),
    ]
    assert len(resolve(f"{glue}#sst2").files) == 2
    internet.server.faults = [Fault("/api/datasets", answer=Answer(body=b"<html>Sign in</html>"))]
    with raises(SourceError, "hub.invalid-response"):
        resolve(f"{glue}#sst2")


@pytest.mark.slow
def test_two_processes_may_fetch_the_same_dataset_at_once(internet: Internet, glue: str):
    script = f"from t5prep.sources import resolve; print([file.sha256 for file in resolve({glue + '#sst2'!r}).files])"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    both = [subprocess.Popen([sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE) for _ in "ab"]
    outputs = {process.communicate(timeout=600)[0] for process in both}
    assert [process.returncode for process in both] == [0, 0]
    assert len(outputs) == 1


def test_folders_are_configs_where_nothing_else_says_so(internet: Internet):
    files = {"en/a.csv": b"1", "de/a.csv": b"2"}
    source = internet.hub.publish("a/b", files)
    with raises(SourceError, "source.ambiguous-config", "de, en"):
        resolve(source)
    assert [file.name for file in resolve(f"{source}#en").files] == ["en/a.csv"]
    assert [file.name for file in resolve(source, include="de/*").files] == ["de/a.csv"]
    splits = internet.hub.publish("a/c", {"train/a.csv": b"1", "validation/a.csv": b"2"})
    assert len(resolve(splits).files) == 2
    scripts = internet.hub.publish("a/d", {"d.py": b""}, branches={hub.PARQUET: files})
    with raises(SourceError, "source.ambiguous-config", "de, en"):
        resolve(scripts, include="*.csv")


def test_an_empty_file_is_empty(internet: Internet):
    source = internet.hub.publish("a/b", {"train.csv": b""})
    for stream in (True, False):
        (file,) = resolved_by(source, stream=stream).files
        assert open_stream(file).read() == b""


def test_a_small_file_of_a_host_that_sends_no_parts_is_read_whole(internet: Internet):
    source = internet.hub.publish("a/b", {"train.csv": b"a,b\n1,2\n"})
    (file,) = resolved_by(source, stream=True).files
    internet.server.faults = [Fault("train.csv", cut=3), Fault("train.csv", answer=Answer(body=b"a,b\n1,2\n"))]
    with open_random(file) as stream:
        assert (stream.read(4), stream.read(), stream.seek(4), stream.read(1)) == (b"a,b\n", b"1,2\n", 4, b"1")
