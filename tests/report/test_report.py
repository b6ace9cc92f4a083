"""The page of a dataset: what it says, that data in it stays text, and how it looks to a browser."""

import dataclasses
import html.parser
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import browser
import pytest
from click.testing import CliRunner
from raised import assert_error, raises
from small_corpora import prepared, questions, write_csv

from t5prep import report
from t5prep.cli import main
from t5prep.dataset import inspect_records, manifest
from t5prep.dataset.prepared import Dataset
from t5prep.dataset.verify import verify
from t5prep.errors import DatasetError, TokenizerError
from t5prep.report import charts, pages, tokens
from t5prep.sources.sample import tokenizer_path
from t5prep.tokens.tokenizer import Tokenizer

EVIL = "<script>console.error('owned')</script><img src=x onerror=console.error(1)>"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Short and long questions; hostile ones in every field; one rejected."""
    folder = tmp_path_factory.mktemp("report")
    rows = questions(60) + [{**row, "Id": f"long{row['Id']}"} for row in questions(6, words=400)]
    rows[3]["Title"] = rows[4]["Body"] = rows[5]["Id"] = rows[6]["Y"] = EVIL
    write_csv(folder / "rows.csv", rows)
    prepared(
        folder / "rows.csv",
        folder / "data",
        tokenizer="sample:",
        input_length=128,
        splits={"train": 0.5, "validation": 0.5},
        shards=2,
    )
    return folder / "data"


def test_the_rows_that_lost_most_are_ranked(data: Path, tmp_path: Path) -> None:
    page = report.write(data, out=tmp_path / "report.html").read_text()
    worst = manifest.load(data).ledger["inputs"]["worst"]
    places = [page.index(f"<td>{row['id']}</td>") for row in worst]
    assert len(places) >= 6
    assert places == sorted(places)
    section = page[page.index("Examples of cut records") :]
    in_train = [row for row in worst if row["split"] == "train"]
    assert f"<h3>{in_train[0]['id']} " in section[: section.index("<h2>")]


def test_a_split_of_few_texts_has_no_labels(tmp_path: Path) -> None:
    """Nor is there a table of labels where only one split could have some."""
    rows = [{"q": f"question {n}", "a": f"A whole answer, number {n}."} for n in range(90)]
    columns = {"inputs_column": "q", "targets_column": "a"}
    source = write_csv(tmp_path / "rows.csv", rows)
    prepared(source, tmp_path / "data", tokenizer="sample:", task="text2text", options=columns)
    assert "<h2>Labels</h2>" not in report.write(tmp_path / "data", out=tmp_path / "report.html").read_text()


class _Tags(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict]] = []

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.tags.append((tag, dict(attrs)))


def _tags(page: str) -> list[tuple[str, dict]]:
    parser = _Tags()
    parser.feed(page)
    return parser.tags


def test_the_page_says_what_the_manifest_says(data: Path, tmp_path: Path) -> None:
    page = report.write(data, out=tmp_path / "report.html").read_text()
    dataset = manifest.load(data)
    cut = dataset.ledger["inputs"]
    assert cut["rows_cut"] >= 6
    for text in (
        dataset.digest,
        f"{cut['tokens_lost']:,} tokens",
        "limit 128",
        "unknown label",
        "rows.csv",
        "as prepared",
    ):
        assert text in page
    assert 'class="marker"' in page
    assert 'class="tail"' in page
    assert "padding × " in page


def test_where_nothing_was_cut_there_is_no_head_and_no_tail(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "rows.csv", questions(20))
    prepared(source, tmp_path / "data", tokenizer="sample:")
    page = report.write(tmp_path / "data", out=tmp_path / "report.html").read_text()
    assert "No input and no target was cut." in page
    assert "✂" not in page
    assert '<span class="text">text</span>' in page


def test_characters_that_vanish_are_named_where_the_source_is_at_hand(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "rows.csv", [{**row, "Body": "if (a)\n{ \u4e2d } <b>"} for row in questions(30)])
    prepared(source, tmp_path / "data", tokenizer="sample:")
    prepared(source, tmp_path / "kept", tokenizer="sample:", keep_newlines=True)

    def read_lost_characters(data: str) -> str:
        page = report.write(tmp_path / data, out=tmp_path / "report.html").read_text()
        return page[: page.index("<h2>Lengths")].partition("Characters lost by the tokenizer")[2]

    assert "examples of rows.csv" in read_lost_characters("data")
    assert (
        '<td>中 U+4E2D CJK UNIFIED IDEOGRAPH-4E2D</td><td class="n">30</td><td>&lt;unk&gt;</td>'
        in read_lost_characters("data")
    )
    assert "<td>newline</td>" in read_lost_characters("data")
    assert "<td>newline</td>" not in read_lost_characters("kept")
    source.write_text(source.read_text() + "one,row,more,low\n")
    assert read_lost_characters("data") == ""
    source.unlink()
    assert read_lost_characters("data") == ""


def test_characters_are_counted_after_filters(tmp_path: Path) -> None:
    """A filter takes out a line with þ from each text, and another one rejects the rows with 中."""
    texts = ["this is a fine line.\nþ is cut", "this is a 中 line of bad text.", "this is a fine line of text."]
    rows = [json.dumps({"text": texts[number % 3], "label": "x"}) for number in range(30)]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    prepare_options = {
        "task": "text2text",
        "options": {"inputs_column": "text", "targets_column": "label"},
        "tokenizer": "sample:",
    }
    source = tmp_path / "rows.jsonl"
    prepared(source, tmp_path / "plain", **prepare_options)
    prepared(source, tmp_path / "filtered", **prepare_options, filter=("c4:sentences=1", "pattern:drop=bad"))
    (tmp_path / "own.py").write_text(
        "import pathlib\npathlib.Path(__file__ + '.run').touch()\ndef same(text): return text"
    )
    prepared(source, tmp_path / "own", **prepare_options, filter=(f"{tmp_path}/own.py:same",))
    (tmp_path / "own.py.run").unlink()

    def read_lost_characters(data: str) -> str:
        page = report.write(tmp_path / data, out=tmp_path / "report.html").read_text()
        return page[: page.index("<h2>Lengths")].partition("Characters lost by the tokenizer")[2]

    assert [mark in read_lost_characters("plain") for mark in "þ中"] == [True, True]
    assert [mark in read_lost_characters("filtered") for mark in "þ中"] == [False, False]
    assert "the first 20 examples of rows.jsonl" in read_lost_characters("filtered")
    assert read_lost_characters("own") == ""  # a manifest's file is not run
    assert not (tmp_path / "own.py.run").exists()


def test_characters_of_a_source_whose_encoding_and_format_were_said(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "rows.csv", [{**row, "Body": "café þ"} for row in questions(30)])
    named_otherwise = tmp_path / "rows.export"
    named_otherwise.write_bytes(source.read_text().encode("cp1252"))
    prepared(named_otherwise, tmp_path / "data", tokenizer="sample:", format="csv", encoding="cp1252")
    page = report.write(tmp_path / "data", out=tmp_path / "report.html").read_text()
    assert "examples of rows.export" in page
    assert '<td>þ U+00FE LATIN SMALL LETTER THORN</td><td class="n">30</td>' in page
    assert "U+00C3" not in page


def test_characters_of_rows_that_are_not_all_examples_and_of_columns_divided_by_another_mark(tmp_path: Path) -> None:
    rows = [json.dumps({"text": f"{number} is þ", "label": "x"}) for number in range(10)]
    (tmp_path / "rows.jsonl").write_text("\n".join([*rows, '{"text": "no label"}', "{broken"]))
    (tmp_path / "rows.csv").write_text("text;label\n" + "".join(f"{number} is þ;x\n" for number in range(10)))
    options = {"inputs_column": "text", "targets_column": "label"}
    for name, delimiter in (("rows.jsonl", ""), ("rows.csv", ";")):
        prepare_options = {"task": "text2text", "options": options, "tokenizer": "sample:", "delimiter": delimiter}
        prepared(tmp_path / name, tmp_path / f"{name}-data", **prepare_options)
        page = report.write(tmp_path / f"{name}-data", out=tmp_path / "report.html").read_text()
        assert '<td>þ U+00FE LATIN SMALL LETTER THORN</td><td class="n">10</td>' in page, name


def test_the_same_data_gives_the_same_bytes(data: Path, tmp_path: Path) -> None:
    first_page, second_page = (report.write(data, out=tmp_path / f"{i}.html").read_bytes() for i in range(2))
    assert first_page == second_page


def test_data_stays_text_and_nothing_is_fetched(data: Path, tmp_path: Path) -> None:
    page = report.write(data, out=tmp_path / "report.html").read_text()
    assert "&lt;script&gt;" in page or "&lt;img" in page
    for tag, attributes in _tags(page):
        assert tag not in ("script", "img", "iframe", "object")
        assert not any(name.startswith("on") for name in attributes)
        for name in ("src", "href", "xlink:href"):
            assert not (attributes.get(name) or "#").strip().startswith(("http", "//", "javascript"))
    (policy,) = (attributes for _, attributes in _tags(page) if "http-equiv" in attributes)
    assert policy["content"].startswith("default-src 'none';")


def test_links_lead_to_examples_of_a_class_a_reason_and_a_length(data: Path, tmp_path: Path) -> None:
    page = report.write(data, out=tmp_path / "r.html").read_text()
    tags = list(_tags(page))
    leads = [attributes["href"].removeprefix("#") for tag, attributes in tags if tag == "a"]
    assert set(leads) <= {attributes.get("id") for _, attributes in tags}
    dataset = manifest.load(data)
    for kind, count in (("class", 3), ("reason", len(dataset.rejected)), ("length", 3)):
        assert sum(lead.startswith(f"{kind}-") for lead in leads) == count, kind
    rows = {record.id: record for record in inspect_records.records(Dataset(data), split="train", count=2000)}
    lengths = {id: sum(token != 0 for token in record.input_ids) for id, record in rows.items()}
    for name, expected_length in (("1", min(lengths.values())), ("3", max(lengths.values()))):
        (id,) = re.findall(r"<h3>([^<]+) <", page.partition(f'id="length-{name}"')[2].partition('class="tokens"')[0])
        assert lengths[id] == expected_length
    for number, label in re.findall(r'<a href="#class-(\d)">(\w+)</a>', page):
        section = page.partition(f'id="class-{number}"')[2].partition("<h3 id=")[0]
        ids = re.findall(r"<h3>([^<]+) <", section)
        assert 1 <= len(ids) <= 3
        assert rows[ids[0]].targets.startswith(label)


def test_ids_in_the_page_are_unique(data: Path, tmp_path: Path) -> None:
    ids = [
        attributes["id"]
        for _, attributes in _tags(report.write(data, out=tmp_path / "r.html").read_text())
        if "id" in attributes
    ]
    assert len(ids) == len(set(ids))


def test_a_page_without_the_tokenizer_says_so(data: Path, tmp_path: Path) -> None:
    model_path = tmp_path / "gone.model"
    shutil.copy(tokenizer_path(), model_path)
    rows = write_csv(tmp_path / "rows.csv", questions(20))
    prepared(rows, tmp_path / "data", tokenizer=str(model_path))
    model_path.unlink()
    page = report.write(tmp_path / "data", out=tmp_path / "report.html").read_text()
    assert "The records cannot be decoded" in page
    assert "gone.model does not exist" in page
    with raises(TokenizerError, "dataset.tokenizer-unavailable", "gone.model"):
        report.write(tmp_path / "data", out=tmp_path / "report.html", tokenizer=str(model_path))
    assert 'class="record"' in report.write(tmp_path / "data", out=tmp_path / "r.html", tokenizer="sample:").read_text()


def test_a_page_in_a_dataset_leaves_it_verified_and_prepared_again(data: Path) -> None:
    path = report.write(data, out=report.default_out(data))
    assert path == data / "report.html"
    assert verify(data) == manifest.load(data)
    path.unlink()


def test_a_dataset_may_be_named_by_its_manifest(data: Path, tmp_path: Path) -> None:
    by_name = report.write(data / "manifest.json", out=tmp_path / "a.html").read_bytes()
    assert by_name == report.write(data, out=tmp_path / "b.html").read_bytes()
    assert report.default_out(data / "manifest.json") == data / "report.html"
    assert verify(f"{data}/manifest.json") == manifest.load(data)


def test_no_dataset_is_one_sentence(tmp_path: Path) -> None:
    with raises(DatasetError, "dataset.missing-manifest", "manifest.json"):
        report.write(tmp_path, out=tmp_path / "report.html")
    (tmp_path / "runs").mkdir()
    pattern = ("dataset.not-found", "rusn")
    with raises(DatasetError, *pattern):
        report.write(tmp_path / "rusn", out=tmp_path / "report.html")


def test_a_manifest_without_percentiles_has_a_page(data: Path, tmp_path: Path) -> None:
    """The JSON Schema lets them be left out."""
    dataset = manifest.load(data)
    del dataset.ledger["inputs"]["tokens_before"]
    shutil.copytree(data, tmp_path / "data")
    (tmp_path / "data" / manifest.NAME).write_text(dataset.sealed().dumps())
    page = report.write(tmp_path / "data", out=tmp_path / "report.html").read_text()
    assert "Half have at most" not in page


def test_a_split_without_shards_has_a_page(data: Path, tmp_path: Path) -> None:
    dataset = manifest.load(data)
    empty = dataclasses.replace(dataset.splits["validation"], shards=[], records=0, examples=0)
    dataset = dataclasses.replace(dataset, splits={**dataset.splits, "validation": empty}).sealed()
    shutil.copytree(data, tmp_path / "data")
    (tmp_path / "data" / "manifest.json").write_text(dataset.dumps())
    assert "validation: no shards." in report.write(tmp_path / "data", out=tmp_path / "a.html").read_text()


@pytest.mark.parametrize("layout", ["ragged", "packed"])
def test_every_layout_has_a_page(layout: str, tmp_path: Path) -> None:
    rows = write_csv(tmp_path / "rows.csv", questions(40))
    prepared(rows, tmp_path / "data", tokenizer="sample:", layout=layout, input_length=256, target_length=64)
    page = report.write(tmp_path / "data", out=tmp_path / "report.html").read_text()
    assert ("are packed into" in page) == (layout == "packed")
    assert 'class="record"' in page


@pytest.mark.extra("fake-gcs-server")
def test_a_dataset_in_a_bucket(data: Path, bucket: str, tmp_path: Path) -> None:
    from t5prep.dataset.upload import upload

    upload(data, f"{bucket}/set")
    assert (
        report.write(f"{bucket}/set", out=tmp_path / "a").read_bytes()
        == report.write(data, out=tmp_path / "b").read_bytes()
    )
    results = [CliRunner().invoke(main, ["inspect", uri, "-n", "3", "--json"]) for uri in (f"{bucket}/set", str(data))]
    assert [result.exit_code for result in results] == [0, 0]
    assert json.loads(results[0].stdout) == json.loads(results[1].stdout)


def test_bars_add_up_to_all_texts() -> None:
    """The heights of a chart's bars, in its own units, are in the ratio of the counts."""
    svg = charts.histogram({16: 100, 32: 50, 48: 25}, step=16, limit=40, quantity="tokens")
    heights = [
        float(bottom) - float(top)
        for bottom, top, fill in re.findall(
            r'<path d="M [\d.]+ ([\d.]+) \nL [\d.]+ [\d.]+ \nL [\d.]+ ([\d.]+) [^"]*" clip-path="[^"]*" style="fill: var\((--\w+)',
            svg,
        )
        if fill in ("--one", "--two")
    ]
    assert [height / max(heights) for height in heights] == pytest.approx([1, 0.5, 0.25], abs=0.01)


def test_what_is_over_the_limit_is_another_colour() -> None:
    svg = charts.histogram({16: 10, 512: 10, 9000: 1}, step=16, limit=512, quantity="tokens")
    assert "var(--one)" in svg
    assert "var(--two)" in svg
    assert "the last bar: all over" in svg
    assert "var(--two)" not in charts.histogram({16: 10, 512: 10}, step=16, limit=512, quantity="tokens")


def test_pieces_of_an_input() -> None:
    words = Tokenizer(tokenizer_path().read_bytes(), name="sample")
    ids = [*words.encode("a head"), words.sentinel(1), *words.encode("a tail"), words.eos_id, 0, 0]
    pieces = tokens.inputs(ids, words, marker=words.sentinel(1))
    kinds = [piece.kind for piece in pieces]
    assert kinds[0] == "text"
    assert kinds.count("marker") == 1
    assert kinds[kinds.index("marker") + 1] == "tail"
    assert [(piece.kind, piece.text) for piece in pieces[-2:]] == [("eos", "</s>"), ("padding", "padding × 2")]
    assert [piece.kind for piece in tokens.labels([words.eos_id, -100, -100], words)] == ["eos", "ignored"]
    assert len(tokens.inputs([5] * 5000, words, marker=None)) == 601


def test_control_characters_are_spelled_out() -> None:
    assert pages.escape_invisible("a\u202eb\x00") == "a\\u202eb\\x00"


@pytest.mark.extra("chromium")
def test_a_browser_draws_it_and_says_nothing(data: Path, tmp_path: Path) -> None:
    browser.look(report.write(data, out=tmp_path / "report.html"))


HIDING = """
import sys
sys.modules[sys.argv[1]] = None
from t5prep.cli import main
for line in sys.argv[2:]:
    try:
        main(line.split())
    except SystemExit as end:
        assert end.code == 1, end
"""


@pytest.mark.parametrize(
    ("missing", "lines"),
    [
        (
            "matplotlib",
            {
                "report {data}": ("install.extra-missing", "matplotlib"),
                "explore {data} --run none": ("run.unreadable", "none"),  # its pages have no charts
            },
        ),
        (
            "jinja2",
            {
                "explore {data}": ("install.extra-missing", "jinja2"),
                "plan --model t5-base --html {data}/plan.html": ("install.extra-missing", "jinja2"),
            },
        ),
    ],
)
def test_a_package_that_is_missing_is_named_before_the_work(
    data: Path, missing: str, lines: dict[str, tuple[str, ...]]
) -> None:
    command = [sys.executable, "-c", HIDING, missing, *(line.format(data=data) for line in lines)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    errors = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    for error, expected in zip(errors, lines.values(), strict=True):
        assert_error(error, *expected)


def test_what_filters_and_near_duplicates_did_is_shown(tmp_path: Path) -> None:
    rows = [
        {"id": f"r{i}", "text": " ".join(f"word{(i * 7 + k) % 50}x{i // 2}" for k in range(30)), "label": "ab"[i % 2]}
        for i in range(8)
    ]
    rows += [
        {"id": "short", "text": "me@example.org", "label": "a"},
        {**rows[0], "id": "again", "text": "b@c.org " + rows[0]["text"]},
    ]
    source = write_csv(tmp_path / "rows.csv", rows)
    prepared(
        source, tmp_path / "out", tokenizer="sample:", task="text2text", dedup="near", filter=("addresses", "words:least=3"),
        options={"inputs_column": "text", "targets_column": "label", "id_column": "id"},
    )  # fmt: skip
    page = report.write(tmp_path / "out", out=tmp_path / "page.html").read_text()
    assert "words too few" in page
    assert "Filters changed the text of 1 row (addresses)" in page
    assert "Near-duplicates" in page
    assert "1 cluster. One row of each cluster remains." in page
