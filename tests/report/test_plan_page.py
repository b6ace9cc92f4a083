"""`plan --html`: what the page says is what the answers say, and text of the user is only text there."""

import dataclasses
import re
from html import escape, unescape
from pathlib import Path

import pytest
from click.testing import CliRunner
from raised import assert_error, raises

from t5prep import cli
from t5prep.errors import OutputError
from t5prep.planning import interface, report
from t5prep.planning.chips import GIB, parse
from t5prep.planning.compiled import Compiled
from t5prep.planning.interface import Plan
from t5prep.planning.model_shapes import MODELS
from t5prep.planning.questions import Answer, Question
from t5prep.report import plan_page
from t5prep.training.settings.train_config import TrainConfig

OPERATIONS = {"gradient: einsum": 600_000, "einsum": 300_000, **{f"kind {n}": 10_000 - n for n in range(14)}}


def a_plan(tpu: str = "v5e-8", *, fits: bool = True, model: str = "t5-base", rows: int = 0) -> Plan:
    config = dataclasses.replace(TrainConfig(), model=model, batch=64)
    question = Question(MODELS["t5-base"], config, parse(tpu), 512, 64)
    sizes = {"weight_bytes": GIB, "slot_bytes": GIB // 2, "temp_bytes": 3 * GIB, "program_bytes": GIB // 4}
    needed = sum(sizes.values()) if fits else 40 * GIB
    cycles = {"estimated_cycles": 1_040_000, "by_operation": OPERATIONS} if fits else {}
    compiled = Compiled(fits, needed, **(sizes if fits else {}), **cycles, versions={"libtpu": "0.0.51"})
    answer = Answer(question, compiled)
    return Plan(answer, report.epoch(answer, rows=rows, price=1.2) if rows else None)


def written(plans: list[Plan], out: Path) -> str:
    plan_page.write(plans, out=out)
    return out.read_text(encoding="utf-8")


def test_it_says_what_the_answer_says(tmp_path: Path) -> None:
    plan = a_plan(rows=1_000_000)
    assert plan.epoch
    assert plan.epoch.price
    text = written([plan], tmp_path / "plan.html")
    page_text = unescape(re.sub(r"<style>.*?</style>|<[^>]+>", " ", text, flags=re.DOTALL))
    for line in report.lines(plan.answer, model="t5-base"):
        assert " ".join(line.split()) in " ".join(page_text.split())
    assert f"{plan.step_seconds * 1e3:.1f} ms" in page_text
    assert f"{plan.epoch.price:.2f}" in page_text
    assert re.search(r"gradient: einsum\s+600\s+58%", page_text)
    assert re.search(r"all others\s+40\s", page_text)
    bars = [float(width) for width in re.findall(r'style="width: ([\d.]+)%"', text)]
    assert bars[:5] == pytest.approx([100 * part / 15.75 for part in (1, 0.5, 3, 0.25, 4.75)], abs=0.6)
    assert "src=" not in text
    assert "<script" not in text


def test_what_does_not_fit_is_said_and_a_sweep_is_a_table(tmp_path: Path) -> None:
    text = written([a_plan(), a_plan("v2-8", fits=False)], tmp_path / "plan.html")
    assert re.search(r"The step does not fit: a device needs 40\.00 of 7\.\d\d GiB", text)
    assert text.count("<h2>") == 3
    for line in report.table([(plan.answer, plan.epoch) for plan in (a_plan(), a_plan("v2-8", fits=False))])[1:3]:
        assert line in text


def test_a_name_is_only_text(tmp_path: Path) -> None:
    text = written([a_plan(model="<script>alert(1)</script>\x1b[2J\ud800")], tmp_path / "plan.html")
    assert "<script" not in text
    assert "\x1b" not in text
    assert "&lt;script&gt;" in text


def test_it_replaces_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    with raises(OutputError, "output.foreign-file"):
        plan_page.write([a_plan()], out=tmp_path / "manifest.json")
    assert (tmp_path / "manifest.json").read_text() == "{}"
    written([a_plan()], tmp_path / "plan.html")
    written([a_plan(rows=9)], tmp_path / "plan.html")


def test_the_command_writes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interface, "stages", lambda question, options, **_: iter([a_plan()]))
    arguments = ["plan", "--model", "t5-base", "--html", str(tmp_path / "one.html")]
    result = CliRunner().invoke(cli.main, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "page: " in result.stderr
    assert "t5-base" in (tmp_path / "one.html").read_text()
    result = CliRunner().invoke(
        cli.main, [*arguments, "--sweep", "--tpu", "v5e-8", "--tpu", "v6e-8"], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    assert (tmp_path / "one.html").read_text().count("<h2>") == 3
    result = CliRunner().invoke(cli.main, [*arguments, "--lengths", "--data", "x"], catch_exceptions=False)
    assert result.exit_code == 1
    assert_error(result.stderr, "option.conflict", "--html", "--lengths")


def test_another_file_in_its_place_is_refused_before_compiling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interface, "stages", lambda question, options, **_: pytest.fail("it was compiled"))
    (tmp_path / "notes.txt").write_text("mine")
    result = CliRunner().invoke(cli.main, ["plan", "--model", "t5-base", "--html", str(tmp_path / "notes.txt")])
    assert result.exit_code == 1
    assert_error(result.stderr, "output.foreign-file", str(tmp_path / "notes.txt"))
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("amount", [0.0, 0.004, 0.009, 0.01, 12345.678])
def test_line_table_and_page_print_the_same_price(tmp_path: Path, amount: float) -> None:
    priced = [dataclasses.replace(a_plan(tpu), epoch=report.Epoch(8, 1, 0.1, amount)) for tpu in ("v5e-8", "v6e-8")]
    price = report.format_price(amount)
    assert f", {price} at" in report.epoch_line(priced[0].epoch, chips=8)
    assert all(line.endswith(f" {price}") for line in report.table([(plan.answer, plan.epoch) for plan in priced])[1:3])
    assert f"<b>{escape(price)}</b>" in written(priced[:1], tmp_path / "plan.html")
