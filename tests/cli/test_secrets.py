"""No option that takes an address shows, or writes anywhere, the password, the token or the signature in it."""

import itertools
import os
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import damage_kit
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from raised import raises
from servers.internet import Internet
from small_corpora import prepared, questions, write_csv

import t5prep
from t5prep.cli import main
from t5prep.cli._addresses import ADDRESS
from t5prep.dataset.settings import Settings
from t5prep.errors import UsageError
from t5prep.io import addresses, web_server
from t5prep.io.addresses import Address

# Text options that take no address: names of columns, formats, splits, and so on.
OTHER_TEXT = {
    *("escape", "skip_files", "split_column", "split_files"),
    *("checkpoint", "column", "columns", "delimiter"),
    *("empty_target", "encoding", "filter", "filters", "format", "group_column", "held_out"),
    *("id", "id_column", "inputs", "inputs_column", "kinds", "label_map", "label_separator", "labels"),
    *("labels_column", "license", "line_pairs", "memory", "metric"),
    *("number_column", "price", "protect", "recipe", "records", "repo", "runner", "second_column"),
    *("settings", "shards", "split", "splits", "tags_column", "targets"),
    *("targets_column", "task", "to", "tpu"),
}
SECRETS = (
    "http://planted0user:planted0password@127.0.0.1:9/a.csv?token=planted0query&planted0bare#planted0part",
    "https://planted0user@example.org/a.parquet;sid=planted0parameter",
    "http:/planted0user:planted0password@host/a.csv",
    "http://planted0user:planted0 password@host/a b.csv?planted0bare",
    "https://planted0user:planted0/password@host/a.csv",
    "http:planted0user:planted0password@host",
    "HTTPS://planted0user:planted0p?ssword@host/a.csv",
    "gs://planted0user:planted0password@bucket/folder",
    "s3://planted0user:planted0password@bucket/folder",
    "hf:planted0user:planted0password@owner/name",
    "zenodo:planted0user@123",
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    prepared(write_csv(folder / "rows.csv", questions(20)), folder / "data", tokenizer="sample:", input_length=16)
    return folder / "data"


def text_parameters() -> Iterator[tuple[tuple[str, ...], click.Command, click.Parameter]]:
    for words, command in damage_kit.commands(main):
        if words[0] == "prepare" and words[1] not in ("text2text", "so_quality"):
            continue
        for parameter in command.params:
            if parameter.type is ADDRESS or isinstance(parameter.type, click.types.StringParamType):
                yield words, command, parameter


def test_every_option_with_a_text_is_an_address_or_is_known_to_be_none() -> None:
    unclear = {
        f"{' '.join(words)}: {parameter.name}"
        for words, _, parameter in text_parameters()
        if parameter.type is not ADDRESS and parameter.name not in OTHER_TEXT
    }
    assert not unclear, "an option that takes an address or a path has type=ADDRESS; any other is named in OTHER_TEXT"


def words_of(command: click.Command, tested: click.Parameter, secret: str, data: Path) -> list[str]:
    """Return arguments with the secret for one parameter, and a good dataset for the others that must be given."""
    words: list[str] = []
    for parameter in command.params:
        value = secret if parameter is tested else str(data)
        if parameter.name == "out" and parameter is not tested:
            value = str(data.parent / "out.csv")
        if isinstance(parameter, click.Argument):
            words += [value] if parameter is tested or (parameter.required and parameter.nargs == 1) else []
        elif parameter is tested or parameter.required:
            words += [parameter.opts[0], value]
    return words


@pytest.mark.parametrize("command", sorted({words for words, _, p in text_parameters() if p.type is ADDRESS}))
def test_no_secret_is_shown_or_written(
    command: tuple[str, ...], data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address_parameters = [
        (c, parameter) for words, c, parameter in text_parameters() if words == command and parameter.type is ADDRESS
    ]
    # Each option is given two of the secrets, and all options of a command together each of them.
    cycle = itertools.cycle(SECRETS)
    rounds = [
        (c, parameter, next(cycle))
        for c, parameter in address_parameters
        for _ in range(max(2, -(-len(SECRETS) // len(address_parameters))))
    ]
    shutil.copytree(data, tmp_path / "data")
    monkeypatch.setattr(web_server.Server, "until_stopped", web_server.Server.server_close)
    with damage_kit.alone(tmp_path):
        for c, parameter, secret in rounds:
            line = [*command, *words_of(c, parameter, secret, tmp_path / "data")]
            result = CliRunner().invoke(main, line, input="")
            assert isinstance(result.exception, SystemExit | None), line
            assert "planted0" not in result.output, line
    for path in tmp_path.rglob("*"):
        assert "planted0" not in str(path)
        assert not path.is_file() or b"planted0" not in path.read_bytes(), path


def test_what_is_made_of_secret_addresses_has_no_secret(internet: Internet, tmp_path: Path) -> None:
    rows = questions(30)
    internet.page("example.org/rows.csv", write_csv(tmp_path / "rows.csv", rows).read_bytes())
    internet.page("example.org/test.csv", write_csv(tmp_path / "test.csv", rows[:3]).read_bytes())
    source = "https://planted0user:planted0password@example.org/rows.csv?token=planted0query"
    held_out = "https://planted0user:planted0password@example.org/test.csv?X-Signature=planted0query"
    out, run = tmp_path / "data", lambda *line: CliRunner().invoke(main, [str(word) for word in line])
    line = ("prepare", "so_quality", "--tokenizer", "sample:", "--input-length", 32, "--out", out, "--workers", 1)
    first_result = run(*line, "--source", source, "--decontaminate", held_out)
    assert first_result.exit_code == 0, first_result.output
    second_result = run(*line, "--source", source, "--decontaminate", held_out)
    results = [
        first_result,
        second_result,
        run("diff", out, out),
        run("report", out),
        run("why", rows[0]["Id"], "--data", out),
    ]
    results += [run("why", rows[5]["Id"], "--data", out, "--source", source)]
    results += [run("table", out, tmp_path / "rejected.jsonl", "--rejected", "--source", source)]
    assert [result.exit_code for result in results] == [0] * len(results), [result.output for result in results]
    assert "leak: " in (out / "rejected.jsonl").read_text()
    assert t5prep.load(out).settings.decontaminate == ("https://example.org/test.csv?X-Signature=…",)
    for result in results:
        assert "planted0" not in result.output
    for path in [*tmp_path.rglob("*"), *Path(os.environ["XDG_STATE_HOME"]).rglob("*")]:
        assert not path.is_file() or b"planted0" not in path.read_bytes(), path


def test_two_addresses_with_one_public_form_are_refused() -> None:
    pair = ("https://example.org/f?file=1", "https://example.org/f?file=2")
    settings = {"task": "so_quality", "options": {}, "input_length": 32, "target_length": 4}
    with raises(UsageError, "source.ambiguous-address"):
        Settings(**settings, decontaminate=pair)
    assert len(Settings(**settings, decontaminate=(pair[0], pair[0])).decontaminate) == 2


def test_an_address_keeps_its_request_to_itself() -> None:
    address = Address("https://me:planted0@example.org/a.csv?b=planted0")
    assert address.request.count("planted0") == 2
    assert Address(address).request == address.request
    for text in (
        str(address),
        repr(address),
        f"{address}",
        pickle.dumps(address).decode("latin-1"),
        str(Path(address)),
    ):
        assert "planted0" not in text


@given(
    st.sampled_from(["http://", "https://", "http:/", "http:", "gs://", "s3://", "ftp://", "hf:"]),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8),
)
def test_a_public_form_has_no_password_and_stays_what_it_is(scheme: str, password: str) -> None:
    public_form = addresses.public(f"{scheme}user:planted0{password}planted1@host/a.csv")
    assert "planted0" not in public_form
    assert "planted1" not in public_form
    assert addresses.public(public_form) == public_form


@given(st.text(max_size=40))
def test_what_is_no_address_stays(text: str) -> None:
    path = text.replace(":", "")
    assert addresses.public(path) == path
