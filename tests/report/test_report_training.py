"""The page of a training run: curves, answers, lineage, and what it does with a run that is half there."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import browser
import pytest
from raised import raises
from small_corpora import prepared, questions, write_csv

from t5prep import report
from t5prep.dataset import manifest
from t5prep.errors import DatasetError, UsageError
from t5prep.report import training_report
from t5prep.training.model.architecture import ModelConfig
from t5prep.training.settings import train_config

EVIL = "<script>alert('x')</script>"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a run leaves (t5prep.training.run.run), without training one."""
    folder = tmp_path_factory.mktemp("run")
    write_csv(folder / "rows.csv", questions(20))
    dataset = prepared(folder / "rows.csv", folder / "data", tokenizer="sample:", input_length=64)
    run = folder / "run"
    run.mkdir()
    (run / "manifest-0.json").write_text(dataset.dumps())
    (run / "train.json").write_text(
        json.dumps({"model": "tiny", "steps": 60, "eval_split": "validation", "note": EVIL})
    )
    lines = [{"step": step, "loss": 5 / step, "learning_rate": 0.1, "<script>": 1.0} for step in range(1, 61)]
    lines += [{"step": step, "validation_loss": 6 / step, "validation_accuracy": step / 60} for step in (30, 60)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 61, "lo')
    return run


def _answers(path: Path, **changes: Any) -> Path:
    answers = {
        "checkpoint": "run/checkpoints/00000060",
        "metrics": {"accuracy": 0.75, "labels": ["low", EVIL], "confusion": [[30, 10, 0], [5, 15, 1]]},
        "worst": [{"id": EVIL, "input": EVIL, "target": "low", "prediction": EVIL, "loss": 7.125}],
        "sample": [{"id": "drawn", "input": EVIL, "target": "low", "prediction": EVIL, "loss": 3.125}],
    }
    path.write_text(json.dumps({**answers, **changes}))
    return path


def test_a_run_is_shown(run: Path, tmp_path: Path) -> None:
    answers = _answers(tmp_path / "eval.json")
    path = report.write(run, out=tmp_path / "a.html", answers=answers)
    page = path.read_text()
    for text in (
        "60 / 60",
        "tiny",
        "training",
        "evaluation",
        "loss 7.12",
        "Wrong answers drawn at random, of each class",
        "loss 3.12",
        "00000060",
        "so_quality",
        "Confusion matrix",
    ):
        assert text in page
    assert page.count("<svg") == 2  # loss and accuracy: a rate that never changes is no curve
    assert "Differences from the closest built-in recipe, <code>tiny</code>" in page
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert report.write(run, out=tmp_path / "b.html", answers=answers).read_bytes() == path.read_bytes()


def test_the_headline_is_the_best_that_is_kept_and_near_copies_are_a_table(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    scores = ((30, 0.9342, 0.8), (60, 0.9289, 0.7))
    lines = [
        {"step": step, "validation_accuracy": accuracy, "validation_f1_macro": f1, "validation_mcc": accuracy - 0.1}
        for step, accuracy, f1 in scores
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = report.write(folder, out=tmp_path / "a.html").read_text()
    assert "<b>0.9342</b><span>validation accuracy, best, at step 30</span>" in page
    assert page.count("<svg") == 1
    assert '<td>f1 macro</td><td class="n">0.8000</td><td class="n">0.7000</td>' in page


def test_a_run_without_answers_says_how_to_get_them(run: Path, tmp_path: Path) -> None:
    assert "t5prep eval --model RUN" in report.write(run, out=tmp_path / "a.html").read_text()
    _answers(run / "eval.json")
    assert "Confusion matrix" in report.write(run, out=tmp_path / "b.html").read_text()
    (run / "eval.json").unlink()


@pytest.mark.parametrize(
    "changes",
    [
        {"metrics": None, "worst": None},
        {"metrics": [], "worst": [7, {}]},
        {"metrics": {"confusion": [1], "labels": 3}},
        {"metrics": {"confusion": [["x"]], "labels": ["a"]}, "worst": [{"loss": "high"}]},
    ],
)
def test_answers_of_another_shape_are_no_traceback(run: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    page = report.write(run, out=tmp_path / "a.html", answers=_answers(tmp_path / "eval.json", **changes))
    assert "Settings" in page.read_text()


def test_a_run_that_has_just_begun_or_is_broken(run: Path, tmp_path: Path) -> None:
    run_folder = tmp_path / "begun"
    run_folder.mkdir()
    (run_folder / "train.json").write_text('{"model": "tiny"}')
    (run_folder / "manifest-0.json").write_text("{}")
    page = report.write(run_folder, out=tmp_path / "a.html").read_text()
    assert "Nothing has been measured twice yet" in page
    assert "is not a t5prep manifest" in page
    (run_folder / "train.json").write_text("{")
    with raises(DatasetError, "run.unreadable"):
        report.write(run_folder, out=tmp_path / "a.html")
    deep = tmp_path / "deep"
    shutil.copytree(run, deep)
    with open(deep / "metrics.jsonl", "a") as file:
        file.write("[" * 100_000 + "\n")
    report.write(deep, out=tmp_path / "a.html")  # a line that cannot be read is left out
    (deep / "train.json").write_text("[" * 100_000)
    with raises(DatasetError, "run.unreadable"):
        report.write(deep, out=tmp_path / "a.html")
    (tmp_path / "broken.json").write_text("[]")
    with raises(UsageError, "answer.missing"):
        report.write(run, out=tmp_path / "a.html", answers=tmp_path / "broken.json")


@pytest.mark.parametrize(
    ("waiting", "message"), [(0.01, "Input does not limit the speed"), (0.6, "Input limits the speed")]
)
def test_how_fast_it_was(run: Path, tmp_path: Path, waiting: float, message: str) -> None:
    """The middle of what was measured, two charts from zero, and what to do when the device waits."""
    fast = tmp_path / "fast"
    shutil.copytree(run, fast)
    with open(fast / "metrics.jsonl", "w") as file:
        for step in range(1, 41):
            print(json.dumps({"step": step, "loss": 5 / step}), file=file)
            if step % 10 == 0:
                speed = {"step": step, "tokens_per_second": 180_000 + step, "waiting_for_input": waiting}
                print(json.dumps(speed), file=file)
    page = report.write(fast, out=tmp_path / "a.html").read_text()
    assert "180,025 tokens a second" in page
    assert message in page
    assert page.count("<svg") == 3
    with open(fast / "metrics.jsonl", "a") as file:
        print('{"step": 50, "tokens_per_second": NaN, "waiting_for_input": "x"}', file=file)
    assert "180,025 tokens a second" in report.write(fast, out=tmp_path / "b.html").read_text()
    once = [
        line
        for line in (fast / "metrics.jsonl").read_text().splitlines()
        if '"tokens' not in line or '"step": 10,' in line
    ]
    (fast / "metrics.jsonl").write_text("\n".join(once) + "\n")
    page = report.write(fast, out=tmp_path / "once.html").read_text()
    assert "180,010 tokens a second" in page  # a short run measures it once, and a chart has no line
    assert page.count("<svg") == 1


def test_a_step_measured_twice_is_drawn_once() -> None:
    """A run goes on from a checkpoint and measures again the steps after it: what it measured last counts."""
    lines = [training_report._Line(step, {"loss": loss}, "") for step, loss in ((10, 4.0), (20, 3.0), (20, 2.5))]
    assert training_report._curves(lines, split="validation") == {"loss": {"training": ([10, 20], [4.0, 2.5])}}


def test_a_loss_that_fell_far_can_be_read_at_its_end() -> None:
    far = training_report._render_chart("loss", {"training": ([1, 2, 3], [9.0, 0.3, 0.2])})
    near = training_report._render_chart("loss", {"training": ([1, 2, 3], [3.0, 2.0, 1.0])})
    assert {">0.2<", ">0.5<", ">1<", ">5<"} <= set(re.findall(r">[\d.]+<", far))
    assert ">0.5<" not in near
    assert "<svg" in training_report._render_chart("loss", {"training": ([1, 2], [9.0, 0.0])})


def test_what_only_evaluation_measures_says_so(run: Path, tmp_path: Path) -> None:
    page = report.write(run, out=tmp_path / "a.html").read_text()
    assert "<figcaption>accuracy, of evaluation</figcaption>" in page
    assert "<figcaption>loss</figcaption>" in page


def test_accuracy_of_tokens_and_of_classes_are_two_panels() -> None:
    """Training counts tokens, an evaluation counts classes: 0.95 beside 0.67 in one panel would compare them."""
    lines = [training_report._Line(step, {"accuracy": 0.9 + step / 1000}, "") for step in (10, 20)]
    lines += [
        training_report._Line(
            step, {"validation_accuracy": step / 30, "validation_token_accuracy": 0.8 + step / 1000}, ""
        )
        for step in (10, 20)
    ]
    curves = training_report._curves(lines, split="validation")
    assert list(curves) == ["accuracy", "token_accuracy"]
    assert list(curves["accuracy"]) == ["evaluation"]
    assert sorted(curves["token_accuracy"]) == ["evaluation", "training"]


def test_the_page_says_recipe_time_parameters_and_classes(run: Path, tmp_path: Path) -> None:
    run_folder = tmp_path / "own"
    shutil.copytree(run, run_folder)
    recipe = {
        **json.loads(train_config.dumps(train_config.build(train_config.read_recipe("tiny")))),
        "batch": 64,
        "eval_split": "validation",
    }
    (run_folder / "train.json").write_text(json.dumps({**recipe, "dtype": "bfloat16"}))
    (run_folder / "config.json").write_text(json.dumps(ModelConfig(vocab_size=128).to_json()))
    split = manifest.loads((run_folder / "manifest-0.json").read_text(), location="").splits["train"]
    speed_then = 64 * sum(split.tokens.values()) / split.records / 2.25  # a step in 2.25 seconds
    with open(run_folder / "metrics.jsonl", "a") as file:
        for step in (70, 80):
            speed = {
                "step": step,
                "tokens_per_second": speed_then,
                "waiting_for_input": 0.1,
                "device": "8 × TPU v5 lite",
            }
            print("\n" + json.dumps(speed), file=file)
    classes = {"low": {"precision": 0.5, "recall": 0.25, "f1": 0.3333, "support": 40}, EVIL: {"f1": "x"}}
    answers = _answers(tmp_path / "eval.json", metrics={"per_class": classes})
    page = report.write(run_folder, out=tmp_path / "a.html", answers=answers).read_text()
    assert "Differences from the closest built-in recipe, <code>tiny</code>" in page
    assert "<tr><td>batch</td><td>32</td><td>64</td></tr>" in page
    assert "<b>3.0 min</b><span>training time, approximate</span>" in page
    assert "<b>8 × TPU v5 lite</b><span>device</span>" in page
    assert "<span>parameters</span>" in page
    leads = re.search(r'<td><a href="#([^"]+)">low</a></td>', page)
    assert leads
    first = page.partition(f'id="{leads[1]}"')[2].partition("</div>")[0]
    assert "<b>target</b>low" in first
    assert (
        '>low</a></td><td class="n">0.5000</td><td class="n">0.2500</td><td class="n">0.3333</td><td class="n">40</td>'
        in page
    )


@pytest.mark.extra("chromium")
def test_a_browser_draws_it_and_says_nothing(run: Path, tmp_path: Path) -> None:
    answers = _answers(tmp_path / "eval.json")
    browser.look(report.write(run, out=tmp_path / "report.html", answers=answers))


def test_pages_and_questions_to_plan_need_no_tensorflow() -> None:
    """`make prep` writes a page in an environment that has none."""
    code = (
        "import sys; sys.modules['tensorflow'] = None; import t5prep.report.training_report, t5prep.planning.questions"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
