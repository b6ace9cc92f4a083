"""The server: many at once, garbage, long waits, and a stop that loses no answer."""

import concurrent.futures
import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import answering
import browser
import pytest

pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

from t5prep.io import web_server
from t5prep.train.model.generation import Generation
from t5prep.train.predict import predictor, rows, serve
from t5prep.train.predict.predictor import Answer, Predictor
from t5prep.train.predict.rows import Asking, Question
from t5prep.train.predict.serve import Server


class Slow(Predictor):
    """A model of copies that answers when it may, and remembers how many it was asked at once."""

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        self.together.append(len(questions))
        self.may.wait(300)
        if any(one.text == "break" for one in questions):
            raise RuntimeError("/secret/path broke")
        return super().answer(questions)


def titled(record: Any) -> rows.Example:
    return rows.Example(None, f"quality: {record['Title']}", "")


TASK = Asking(titled, columns=("Title",), id_column="Id", line_column="Title", name="so_quality")


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(predictor, "Device", answering.Copies)
    made_of = Slow(answering.model(None), asking=TASK, generation=Generation(max_length=32), batch=16)
    made_of.together, made_of.may = [], threading.Event()  # type: ignore[attr-defined]
    made_of.may.set()
    made = Server(("127.0.0.1", 0), made_of, asking=TASK, name="toy", queue=100)
    made.predictor = made_of  # type: ignore[attr-defined]
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield made
    made.close()
    thread.join(timeout=300)
    assert not thread.is_alive()


def ask(served: Server, said: Any, path: str = "predict") -> tuple[int, Any]:
    """The status and the JSON of an answer."""
    body = said if isinstance(said, bytes) else json.dumps(said).encode()
    try:
        with urllib.request.urlopen(served.url + path, data=body, timeout=300) as reply:
            return reply.status, json.loads(reply.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_rows_and_texts_are_answered(served: Server) -> None:
    assert ask(served, {"rows": [{"Id": "a", "Title": "Why?"}, {"Id": "b"}, {"Title": True}]}) == (
        200,
        {
            "predictions": [
                {"id": "a", "input": "quality: Why?", "prediction": "quality: Why?"},
                {"id": "b", "input": "", "prediction": None, "reason": "missing field: Title"},
                {"id": "3", "input": "", "prediction": None, "reason": "not text: Title holds true or false"},
            ]
        },
    )
    _, said = ask(served, {"inputs": ["so it is", ["two", "fields"]]})
    assert [one["prediction"] for one in said["predictions"]] == ["so it is", "two fields"]


def test_sixty_four_at_once_share_batches_and_garbage_stops_nobody(served: Server) -> None:
    def garbage() -> bytes:
        with socket.create_connection(served.server_address[:2], timeout=300) as client:
            client.sendall(b"\x16\x03\x01\x00\xff" + bytes(range(256)) + b"\r\n\r\n")
            return client.recv(4096)

    together, may = served.predictor.together, served.predictor.may  # type: ignore[attr-defined]
    may.clear()
    with concurrent.futures.ThreadPoolExecutor(72) as pool:
        bad = [pool.submit(garbage) for _ in range(8)]
        good = [pool.submit(ask, served, {"inputs": [f"text {n}"]}) for n in range(64)]
        # Until all have come; the first ones are being answered.
        while sum(together) + served.queue._count < 64 and not any(one.done() for one in good):
            time.sleep(0.01)
        may.set()
        said = [future.result() for future in good]
    assert [status for status, _ in said] == [200] * 64
    assert [one["predictions"][0]["prediction"] for _, one in said] == [f"text {n}" for n in range(64)]
    assert sum(together) == 64
    assert len(together) <= 5  # alone, each of them would have been a batch
    assert max(together) <= 16
    assert all(b"400" in future.result() for future in bad)


@pytest.mark.parametrize(
    ("said", "status", "sentence"),
    [
        (b"{", 400, "The request is not JSON."),
        (b"[" * 100_000, 400, "The request is not JSON."),
        ([], 400, "A request is "),
        ({"inputs": "text"}, 400, "A request is "),
        ({"inputs": [7]}, 400, "A request is "),
        ({"rows": ["text"]}, 400, "A request is "),
        ({"inputs": ["a"] * 257}, 413, "at most 256 rows"),
        (b'{"inputs": ["\\ud800"]}', 400, "half of a surrogate pair"),
        (b'{"inputs": ["' + b"a" * serve.BODY_BYTES + b'"]}', 413, "at most 1,048,576 bytes"),
        ({"inputs": ["break"]}, 500, "The model could not answer this."),
    ],
)
def test_what_is_no_question_is_a_sentence(served: Server, said: Any, status: int, sentence: str) -> None:
    try:
        got, answer = ask(served, said)
    except urllib.error.URLError:  # it hung up before the whole body was sent, which may be large
        assert status == 413
        return
    assert (got, sentence in answer["error"]) == (status, True)
    assert "secret" not in answer["error"]
    assert ask(served, {"inputs": ["still there"]})[0] == 200


def test_other_places_and_the_page(served: Server) -> None:
    assert ask(served, {}, path="elsewhere")[0] == 404
    base = served.url
    with urllib.request.urlopen(f"{base}health") as reply:
        assert json.loads(reply.read()) == {"ready": True, "model": "toy", "task": "so_quality"}
    with urllib.request.urlopen(base) as reply:
        text = reply.read().decode()
        assert "default-src 'none'" in reply.headers["Content-Security-Policy"]
    facts = json.loads(text.partition('id="facts">')[2].partition("</script>")[0])
    assert facts == {"name": "toy", "task": "so_quality", "fields": ["Title"]}
    evil = serve.page(TASK, name="</script><b>").decode()
    assert "<b>" not in evil
    connection = http.client.HTTPConnection(*served.server_address[:2], timeout=300)
    connection.request("POST", "/predict", headers={"Content-Length": "-5"})
    assert connection.getresponse().status == 413


def test_the_page_shows_a_question_beside_its_answer(tmp_path: Path) -> None:
    """Also after another was asked, and as text, whatever it holds."""
    asked = """<script>
        const answers = body => ({predictions: [{prediction: "of " + JSON.parse(body).rows[0].Title}]});
        window.fetch = async (_, how) => ({json: async () => answers(how.body)});
        at("Title").value = "one <b>"; document.forms[0].requestSubmit();
        at("Title").value = "two"; document.forms[0].requestSubmit();
        </script></html>"""
    (tmp_path / "page.html").write_text(serve.page(TASK, name="toy").decode().replace("</html>", asked))
    (shown,) = browser.read(f"file://{tmp_path}/page.html")
    pair = '<div class="answer"><div class="quiet question">{0}</div><div>of {0}</div></div>'
    assert pair.format("two") + pair.format("one &lt;b&gt;") in shown


def test_the_queue_is_bounded_and_closing_answers_what_waits() -> None:
    asked: list[int] = []
    go = threading.Event()

    def slow(questions: Sequence[Question]) -> list[Answer]:
        go.wait(300)
        asked.append(len(questions))
        return [Answer(one.id, "", "yes") for one in questions]

    queue = serve.AnswerQueue(slow, batch=4, most=10)
    question = Question("1", None)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        first = pool.submit(queue.ask, [question] * 4)
        while queue._count:  # the first is being answered
            time.sleep(0.001)
        waiting = [pool.submit(queue.ask, [question] * 3) for _ in range(3)]
        while queue._count < 9:
            time.sleep(0.001)
        with pytest.raises(serve.FullError):
            queue.ask([question] * 2)
        closing = pool.submit(queue.close)
        go.set()
        assert [len(future.result(300)) for future in (first, *waiting)] == [4, 3, 3, 3]
        closing.result(300)
    assert asked == [4, 3, 3, 3]
    with pytest.raises(serve.FullError):
        queue.ask([question])


@pytest.mark.slow
def test_a_real_server_stops_cleanly(tmp_path: Path) -> None:
    from t5prep.train.model.weights import random_weights, save_weights
    from t5prep.train.run.run import TINY

    tokenizer = answering.model(None).tokenizer
    assert tokenizer
    (tmp_path / "spiece.model").write_bytes(tokenizer.model)
    import dataclasses

    shape = dataclasses.replace(TINY, vocab_size=tokenizer.padded_size)
    (tmp_path / "config.json").write_text(json.dumps(shape.to_json()))
    save_weights(tmp_path, shape, random_weights(shape, seed=0))
    command = ["serve", "--model", str(tmp_path), "--port", "0", "--max-length", "4"]
    process = subprocess.Popen([sys.executable, "-m", "t5prep.cli", *command], stderr=subprocess.PIPE, text=True)
    assert process.stderr
    address = ""
    for line in process.stderr:
        if " answers at " in line:
            address = line.split(" answers at ")[1].split()[0].rstrip(".")
            break
    body = json.dumps({"inputs": ["a", "b"]}).encode()
    with urllib.request.urlopen(f"{address}predict", data=body, timeout=600) as reply:
        said = reply.read().decode()
    assert [one["id"] for one in json.loads(said)["predictions"]] == ["1", "2"]
    assert str(tmp_path) not in said
    process.send_signal(signal.SIGTERM)
    assert process.wait(300) == 0
    assert "Stopped; everything that was asked is answered." in process.stderr.read()


def raw(served: Server, request: bytes, *, seconds: float = 300) -> bytes:
    """What the server answers to these bytes."""
    with socket.create_connection(served.server_address[:2], timeout=seconds) as client:
        client.sendall(request)
        return b"".join(iter(lambda: client.recv(4096), b""))


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ("Host: 127.0.0.1:8000", b"200"),
        ("Host: localhost", b"200"),
        ("Host: [::1]:80", b"200"),
        ("Host: evil.example", b"403"),
        ("Host: localhost:80\r\nOrigin: http://localhost:80", b"200"),
        ("Host: localhost:80\r\nOrigin: http://evil.example", b"403"),
        ("Host: localhost:80\r\nOrigin: http://localhost:81", b"403"),
        ("Host: localhost:80\r\nOrigin: null", b"403"),
    ],
)
def test_pages_of_other_sites_may_not_ask(served: Server, headers: str, status: bytes) -> None:
    body = b'{"inputs": ["a"]}'
    for line in (f"POST /predict HTTP/1.0\r\nContent-Length: {len(body)}", "GET / HTTP/1.0"):
        sent = f"{line}\r\n{headers}\r\n\r\n".encode() + (body if line.startswith("POST") else b"")
        assert raw(served, sent).split()[1] == status, line


def test_a_request_that_drips_in_is_ended_at_its_deadline(served: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time; the whole request does not."""
    monkeypatch.setattr(web_server, "SLOWEST_SECONDS", 0.3)  # before the server accepts, for that begins the time
    with socket.create_connection(served.server_address[:2], timeout=300) as client:
        client.sendall(b"POST /predict HTTP/1.0\r\nContent-Length: 1000000\r\n\r\n")
        ended = False
        for _ in range(6000):
            try:
                client.sendall(b"a")
            except OSError:
                ended = True
                break
            threading.Event().wait(0.05)
    monkeypatch.undo()
    assert ended
    assert ask(served, {"inputs": ["still there"]})[0] == 200
