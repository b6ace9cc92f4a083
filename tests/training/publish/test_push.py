"""Pushing to the Hub: the real client against a local server that speaks its API; and what is refused."""

import base64
import json
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner
from raised import assert_error, raises
from servers.writable_hub import WritableHub, writable_hub  # noqa: F401 - a fixture

from t5prep.cli import main
from t5prep.errors import OutputError, UsageError
from t5prep.training.publish.push import push


@pytest.fixture
def exported(tmp_path: Path) -> str:
    for name in ("model.safetensors", "config.json", "README.md"):
        (tmp_path / name).write_text("{}")
    return str(tmp_path)


def test_every_file_arrives_in_one_commit(
    writable_hub: type[WritableHub],  # noqa: F811
    exported: str,
) -> None:
    assert push(exported, repo="me/model").endswith("me/model")
    commits = [body for path, body in writable_hub.requests if "/commit/" in path]
    assert len(commits) == 1
    lines = [json.loads(line) for line in commits[0].splitlines()]
    assert {line["value"]["path"] for line in lines if line["key"] == "file"} == {
        "model.safetensors",
        "config.json",
        "README.md",
    }


@pytest.mark.parametrize(
    ("status", "error", "message"),
    [
        (401, UsageError, ("hub.missing-login",)),
        (403, OutputError, ("hub.missing-permission", "403")),
        (404, OutputError, ("hub.missing-permission", "404")),
        (409, OutputError, ("hub.upload-failure", "409")),
        (413, OutputError, ("hub.upload-failure", "413")),
        (501, OutputError, ("hub.unavailable", "501")),
    ],
)
def test_who_may_not_write(
    writable_hub: type[WritableHub],  # noqa: F811
    exported: str,
    status: int,
    error: type,
    message: tuple[str, ...],
) -> None:
    writable_hub.status = status
    with raises(error, *message) as raised:
        push(exported, repo="me/model")
    assert "hf_planted" not in str(raised.value)


def test_only_models_are_pushed(tmp_path: Path) -> None:
    for _ in range(2):
        with raises(UsageError, "hub.unexported-model"):
            push(str(tmp_path), repo="me/model")
        (tmp_path / "config.json").write_text("{}")
    (tmp_path / "spiece.model").touch()
    with raises(UsageError, "model.invalid-config"):
        push(str(tmp_path), repo="me/model")


def test_a_tokenizer_and_a_shape_are_pushed_without_weights_and_get_a_card(
    writable_hub: type[WritableHub],  # noqa: F811
    tmp_path: Path,
) -> None:
    shape = {"model_type": "t5", "vocab_size": 32128, "d_model": 512}
    for name, content in (("config.json", json.dumps(shape)), ("tokenizer.json", "{}"), ("notes.txt", "mine")):
        (tmp_path / name).write_text(content)
    push(str(tmp_path), repo="me/model")
    (commit,) = (body for path, body in writable_hub.requests if "/commit/" in path)
    lines = [json.loads(line) for line in commit.splitlines()]
    sent = {
        line["value"]["path"]: base64.b64decode(line["value"]["content"]) for line in lines if line["key"] == "file"
    }
    assert sent.keys() == {"README.md", "config.json", "tokenizer.json"}
    card = sent["README.md"].decode()
    assert card.startswith("---\nlibrary_name: transformers\ntags:\n- t5\n- t5prep\n---\n\n# model\n")
    assert "32,128 embeddings" in card
    assert "| d_model | 512 |" in card


def test_logs_are_those_of_a_run(exported: str) -> None:
    result = CliRunner().invoke(main, ["push", "--model", exported, "--repo", "me/model", "--logs"])
    assert result.exit_code == 2
    assert_error(result.stderr, "option.inapplicable", "--logs", exported)


def test_a_hub_that_does_not_answer_is_one_sentence(exported: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    with socket.socket() as closed:  # a port that is bound and not listened at refuses
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", f"http://127.0.0.1:{closed.getsockname()[1]}")
        monkeypatch.setenv("HF_TOKEN", "hf_planted")
        result = CliRunner().invoke(main, ["push", "--model", exported, "--repo", "me/model"])
    assert result.exit_code == 1
    assert_error(result.stderr, "hub.unavailable")
    assert "hf_planted" not in result.output
