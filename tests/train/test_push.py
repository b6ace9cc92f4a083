"""Pushing to the Hub: the real client against a local server that speaks its API; and what is refused."""

import http.server
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from t5prep.cli import main
from t5prep.errors import OutputError, UsageError
from t5prep.train.push import push


class _Hub(http.server.BaseHTTPRequestHandler):
    """Repositories that take every file as a regular one."""

    said: list[tuple[str, bytes]] = []  # noqa: RUF012 - emptied by the fixture
    status = 200

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.said.append((self.path, body))
        if self.path.endswith("/create"):
            host = f"http://{self.headers['Host']}"
            self._answer({"url": f"{host}/me/model", "name": "me/model", "id": "1"})
        elif "/preupload/" in self.path:
            files = json.loads(body)["files"]
            self._answer(
                {"files": [{"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in files]}
            )
        elif "/commit/" in self.path:
            self._answer(
                {
                    "commitUrl": f"http://{self.headers['Host']}/me/model/commit/{'1' * 40}",
                    "commitOid": "1" * 40,
                    "hookOutput": "",
                }
            )
        else:
            self._answer({})

    def do_GET(self) -> None:
        self._answer({"id": "me/model", "sha": "0" * 40, "siblings": [], "private": False})

    def _answer(self, value: dict) -> None:
        body = json.dumps(value).encode()
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[_Hub]]:
    import huggingface_hub.constants

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("HF_TOKEN", "hf_planted")
    _Hub.said, _Hub.status = [], 200
    yield _Hub
    server.shutdown()
    server.server_close()


@pytest.fixture
def exported(tmp_path: Path) -> str:
    for name in ("model.safetensors", "config.json", "README.md"):
        (tmp_path / name).write_text("{}")
    return str(tmp_path)


def test_every_file_arrives_in_one_commit(hub: type[_Hub], exported: str) -> None:
    assert push(exported, repo="me/model").endswith("me/model")
    commits = [body for path, body in hub.said if "/commit/" in path]
    assert len(commits) == 1
    lines = [json.loads(line) for line in commits[0].splitlines()]
    assert {line["value"]["path"] for line in lines if line["key"] == "file"} == {
        "model.safetensors",
        "config.json",
        "README.md",
    }


@pytest.mark.parametrize(("status", "error", "said"), [(401, UsageError, "hf auth login"), (403, OutputError, "403")])
def test_who_may_not_write(hub: type[_Hub], exported: str, status: int, error: type, said: str) -> None:
    hub.status = status
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
