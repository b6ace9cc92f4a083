"""The page of a run on a terminal: what it shows, that it leaves nothing behind, and that elsewhere there are lines."""

import io
import json
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

from t5prep.train import live_page, log
from t5prep.train.log import RunLog


class Terminal(io.StringIO):
    """A terminal that remembers what was written."""

    def isatty(self) -> bool:
        return True


def screen(written: str) -> list[str]:
    """The lines that a terminal shows at the end: it obeys line feeds, moves up and erased lines."""
    lines, at = [""], 0
    for piece in re.split(r"(\x1b\[\d*[A-Za-z]|\x1b\[\?\d+[hl]|\x1b\[[\d;]*m|\r|\n)", written):
        if piece == "\n":
            at += 1
            lines += [""] * (at + 1 - len(lines))
        elif piece == "\x1b[2K":
            lines[at] = ""
        elif move := re.fullmatch(r"\x1b\[(\d*)A", piece):
            at -= int(move[1] or 1)
        elif not re.fullmatch(r"\x1b.*|\r", piece):
            lines[at] += piece
    return [line.rstrip() for line in lines]


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Puts a terminal in the place of stderr; in the test itself, for pytest changes stderr after fixtures."""
    made = Terminal()
    for name in ("stderr", "__stderr__"):
        monkeypatch.setattr(sys, name, made)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    return made


def test_a_page_is_drawn_and_what_is_said_stays_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    now = [0.0]
    monkeypatch.setattr(log.time, "monotonic", lambda: now[0])
    with RunLog(str(tmp_path), step=0, steps=100, tokens_per_step=50.0, tensorboard=False) as made:
        for step in range(1, 9):
            now[0] += 0.5
            made.line(step, loss=4.0 / step, learning_rate=1e-3, waited=0.25)
            if step == 4:
                log.say("evaluated: 0.5")
        shown = screen(terminal.getvalue())
    whole = "\n".join(shown)
    assert shown[0] == "evaluated: 0.5"
    assert whole.count("8 of 100, 8%, 46 s left") == 1
    assert whole.count("of 100") == 1
    assert "0.5000  █▄▃▂▂▁▁▁" in whole
    assert "100 tokens/s" in whole
    assert "the input, 50% of the time" in whole
    assert re.search(r"memory +[\d.,]+ [GM]B of this machine at most", whole)
    assert [line for line in screen(terminal.getvalue()) if line] == ["evaluated: 0.5"]
    log.say("after it")
    assert [line for line in screen(terminal.getvalue()) if line] == ["evaluated: 0.5", "after it"]


def test_what_a_signal_says_leaves_no_line_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    with RunLog(str(tmp_path), step=0, steps=9, tokens_per_step=50.0, tensorboard=False) as made:
        made.line(1, loss=2.0, learning_rate=1e-3, waited=0.0)
        terminal.write(log.at_once("SIGINT: saving").decode())  # as its thread writes it
        assert [line for line in screen(terminal.getvalue()) if line][-1] == "SIGINT: saving"
        made.line(2, loss=2.0, learning_rate=1e-3, waited=0.0)
        assert "\n".join(screen(terminal.getvalue())).count("of 9") == 1
        assert log.at_once("ends", last=True).endswith(b"ends\n\x1b[?25h")
    assert log.at_once("ends", last=True) == b"ends\n"


def test_its_last_line_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    with RunLog(str(tmp_path), step=0, steps=1, tokens_per_step=50.0, tensorboard=False) as made:
        made.line(1, loss=2.0, learning_rate=1e-3, waited=0.0)
    (line,) = [line for line in screen(terminal.getvalue()) if line]
    assert line.startswith("step 1/1  loss 2.0000  lr 1.00e-03")
    assert json.loads((tmp_path / "metrics.jsonl").read_text())["step"] == 1


def test_elsewhere_there_are_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunLog(str(tmp_path), step=0, steps=1, tokens_per_step=50.0, tensorboard=False) as made:
        made.line(1, loss=2.0, learning_rate=1e-3, waited=0.0)
    said = capsys.readouterr().err
    assert said.startswith("step 1/1  loss 2.0000")
    assert "\x1b" not in said
    monkeypatch.setenv("TERM", "dumb")
    assert not live_page.wanted(Terminal())
    assert not live_page.wanted(io.StringIO())
