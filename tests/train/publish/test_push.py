"""Pushing to the Hub: the real client against a local server that speaks its API; and what is refused."""

import json
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner
from servers.hub_that_takes import HubThatTakes, hub_that_takes  # noqa: F401 - a fixture

from t5prep.cli import main
from t5prep.errors import OutputError, UsageError
from t5prep.train.publish.push import push


@pytest.fixture
def exported(tmp_path: Path) -> str:
    for name in ("model.safetensors", "config.json", "README.md"):
        (tmp_path / name).write_text("{}")
    return str(tmp_path)


def test_every_file_arrives_in_one_commit(
    hub_that_takes: type[HubThatTakes],  # noqa: F811
    exported: str,
) -> None:
    assert push(exported, repo="me/model").endswith("me/model")
    commits = [body for path, body in hub_that_takes.said if "/commit/" in path]
    assert len(commits) == 1
    lines = [json.loads(line) for line in commits[0].splitlines()]
    assert {line["value"]["path"] for line in lines if line["key"] == "file"} == {
        "model.safetensors",
        "config.json",
        "README.md",
    }


@pytest.mark.parametrize(("status", "error", "said"), [(401, UsageError, "hf auth login"), (403, OutputError, "403")])
def test_who_may_not_write(
    hub_that_takes: type[HubThatTakes],  # noqa: F811
    exported: str,
    status: int,
    error: type,
    said: str,
) -> None:
    hub_that_takes.status = status
    with pytest.raises(error, match=said) as raised:
        push(exported, repo="me/model")
    assert "hf_planted" not in str(raised.value)


def test_only_exported_models_are_pushed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not an exported model"):
        push(str(tmp_path), repo="me/model")


def test_a_hub_that_does_not_answer_is_one_sentence(exported: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    with socket.socket() as closed:  # a port that is bound and not listened at refuses
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", f"http://127.0.0.1:{closed.getsockname()[1]}")
        monkeypatch.setenv("HF_TOKEN", "hf_planted")
        result = CliRunner().invoke(main, ["push", "--model", exported, "--repo", "me/model"])
    assert result.exit_code == 1
    assert "Error: The network does not answer: " in result.output
    assert "hf_planted" not in result.output
