"""A Hub that takes what is pushed to it, and remembers it."""

import http.server
import json
import threading
from collections.abc import Iterator

import pytest


class WritableHub(http.server.BaseHTTPRequestHandler):
    """Repositories that take every file as a regular one."""

    requests: list[tuple[str, bytes]] = []  # noqa: RUF012 - emptied by the fixture
    status = 200

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.requests.append((self.path, body))
        if self.path.endswith("/create"):
            payload = json.loads(body)
            name = f"{payload.get('organization') or 'me'}/{payload['name']}"
            folder = "datasets/" if payload.get("type") == "dataset" else ""
            self._answer({"url": f"http://{self.headers['Host']}/{folder}{name}", "name": name, "id": "1"})
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
def writable_hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[WritableHub]]:
    import huggingface_hub.constants

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), WritableHub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("HF_TOKEN", "hf_planted")
    WritableHub.requests, WritableHub.status = [], 200
    yield WritableHub
    server.shutdown()
    server.server_close()
