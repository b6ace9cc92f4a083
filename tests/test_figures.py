"""Figures of README and docs: where one stands twice it is the same, and what measured it is there to be run again."""

import re
from pathlib import Path

import pytest
import readme

from t5prep.training.settings import train_config
from t5prep.training.step import schedules

SYSTEMS = (readme.ROOT / "docs" / "published-systems.md").read_text(encoding="utf-8")
PHRASES = "SST-2, phrases of `train.tsv`"
DECISIONS = readme.ROOT / "docs" / "decisions"
DUPLICATES = (readme.ROOT / "docs" / "preparing" / "duplicates-and-filters.md").read_text(encoding="utf-8")


def _scores(recipe: str) -> list[str]:
    """Return the numbers with a decimal point in the first line of a recipe, which says its score."""
    return re.findall(r"\d+\.\d+", train_config.recipes()[recipe])


@pytest.mark.parametrize(
    ("recipe", "template"),
    [("so_quality", "accuracy {}"), ("sst2", "accuracy {} (T5-base)"), ("translate_en_ro", "BLEU {}")],
)
def test_the_scores_to_compare_with_are_the_recipes(recipe: str, template: str) -> None:
    assert template.format(_scores(recipe)[0]) in SYSTEMS


def test_the_score_of_the_tiny_encoder_is_the_recipes() -> None:
    assert f"reached {float(_scores('tiny_bert')[0]):.2f}, " in SYSTEMS


def test_how_many_phrases_repeat_is_what_the_table_has_less() -> None:
    counts = {kind: [int(n.replace(",", "")) for n in cells[:2]] for kind, cells in _rows_of(PHRASES).items()}
    match = re.search(
        r"SST-2's ([\d,]+) training phrases ([\d,]+) repeat another one exactly and ([\d,]+)\s", DUPLICATES
    )
    assert match
    phrases, exactly, nearly = (int(number.replace(",", "")) for number in match.groups())
    assert phrases == sum(counts["none"])
    assert exactly == phrases - sum(counts["exact"])
    assert nearly == phrases - sum(counts["near"])


def test_no_figure_is_of_a_program_that_nobody_can_run() -> None:
    for page in readme.PAGES:
        assert "program that is not kept" not in page.read_text(encoding="utf-8"), page.name


def _rows_of(corpus: str) -> dict[str, list[str]]:
    """Return the three lines of a corpus in the table of leaks, by `--dedup`."""
    lines = DUPLICATES[DUPLICATES.index(f"| {corpus} |") :].splitlines()[:3]
    cells = [[cell.strip() for cell in line.split("|")[2:-1]] for line in lines]
    return {kind: [rows, *other_cells] for kind, rows, *other_cells in cells}


def test_what_fits_by_the_trainers_own_optimizer_names_it() -> None:
    assert train_config.build({}).optimizer == "adafactor"
    assert "with `--set optimizer=adafactor` it fits a v2-8" in SYSTEMS


def test_every_measured_page_says_when_and_by_what() -> None:
    """The benches that pages name are there, and pages with measurements have a date."""
    for page in readme.PAGES:
        text = page.read_text(encoding="utf-8")
        for name in re.findall(r"\bbench_\w+", text):
            assert (readme.ROOT / "tests" / "benchmarks" / f"{name}.py").is_file(), (page.name, name)
        for name in re.findall(r"python (tests/[\w/]+\.py)", text):
            assert Path(readme.ROOT, name).is_file(), (page.name, name)
    for name in ("speed.md", "scale.md", "preparing/duplicates-and-filters.md"):
        assert re.search(r"(November 2026|2026-1\d-\d\d)", (readme.ROOT / "docs" / name).read_text(encoding="utf-8")), (
            name
        )


def test_the_index_of_decisions_has_each_record_by_its_title() -> None:
    index = (DECISIONS / "README.md").read_text(encoding="utf-8")
    records = sorted(DECISIONS.glob("[0-9]*.md"))
    for number, record in enumerate(records, start=1):
        text = record.read_text(encoding="utf-8")
        title = text.partition("\n")[0].removeprefix("# ")
        assert title.startswith(f"{number:03}: "), record.name
        assert f"[{title}]({record.name})" in index, record.name
        assert re.search(r"^\* \*\*Date\*\*: 2026-1\d-\d\d", text, re.MULTILINE), record.name
        assert "\n## Decision\n" in text, record.name
    assert index.count("](0") == len(records)


def test_the_code_that_decisions_name_is_there() -> None:
    for record in DECISIONS.glob("[0-9]*.md"):
        for line in re.findall(r"^\* \*\*Code\*\*: (.+)$", record.read_text(encoding="utf-8"), re.MULTILINE):
            for path in re.findall(r"`([\w/.]+\.\w+)`", line):
                assert (readme.ROOT / path).is_file() or path.count("/") == 0, (record.name, path)


def test_all_schedules_are_listed() -> None:
    reference = (readme.ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    (row,) = [line for line in reference.splitlines() if line.startswith("| `schedule` |")]
    for name in schedules.NAMES:
        assert re.search(rf"\b{name}\b", row), name
