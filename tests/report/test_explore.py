"""The pages of `explore`: the rows that are asked for, one row with its tokens and its life, and who may ask."""

import contextlib
import html
import http.client
import json
import re
import shutil
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import browser
import pytest
from click.testing import CliRunner
from raised import raises, refused
from small_corpora import prepared, questions, write_csv

import t5prep
from t5prep.cli import main
from t5prep.errors import DatasetError, UsageError
from t5prep.options.models import SourceOptions
from t5prep.report import explore
from t5prep.report.explore import Explorer, RowQuery, Server


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("T5PREP_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Questions, two of them nearly the same, some cut, some that make no record."""
    folder, rows = tmp_path_factory.mktemp("explore"), questions(130)
    rows[3] |= {"Title": "", "Body": ""}
    rows[9] |= {"Y": "nothing"}
    rows[20] = rows[21] | {"Id": rows[20]["Id"], "Body": rows[21]["Body"] + " more"}
    for row in rows[50:60]:
        row["Body"] *= 3
    prepared(write_csv(folder / "a.csv", rows), folder / "d", tokenizer="sample:", input_length=160, dedup="near")
    return folder / "d"


@pytest.fixture(scope="module")
def answers(data: Path) -> Path:
    """Answers to each record of validation, of which every other is wrong; the losses grow."""
    rows = t5prep.table(data, splits=["validation"]).read_all().to_pylist()
    predictions = [
        {
            "id": row["id"],
            "prediction": row["target"] if n % 2 else "none of it",
            "references": [row["target"]],
            "loss": n / 4,
        }
        for n, row in enumerate(rows)
    ]
    (data.parent / "eval.json").write_text(json.dumps({"predictions": predictions}))
    return data.parent / "eval.json"


@pytest.fixture(scope="module")
def explorer(data: Path, answers: Path) -> Explorer:
    return Explorer(data, predictions=answers)


@contextlib.contextmanager
def serving(explorer: Explorer) -> Iterator[Server]:
    server = Server(explorer, port=0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join(timeout=300)


@pytest.fixture
def served(explorer: Explorer) -> Iterator[Server]:
    with serving(explorer) as server:
        yield server


def page(served: Server, address: str = "/") -> str:
    with urllib.request.urlopen(served.url.rstrip("/") + address, timeout=300) as reply:
        assert "default-src 'none'" in reply.headers["Content-Security-Policy"]
        return reply.read().decode()


# What a question asks for, and the same in Python, of a row of the table.
QUERIES: list[tuple[RowQuery, Any]] = [
    (RowQuery(), lambda row: True),
    (RowQuery(split="validation"), lambda row: row["split"] == "validation"),
    (RowQuery(target="high"), lambda row: row["target"] == "high"),
    (RowQuery(cut="yes"), lambda row: row["cut"]),
    (RowQuery(cut="no", split="train"), lambda row: not row["cut"] and row["split"] == "train"),
    (RowQuery(min_tokens=90, max_tokens=140), lambda row: 90 <= row["input_tokens"] <= 140),
    (RowQuery(search="TITLE 7"), lambda row: "title 7" in row["input"].lower()),
    (RowQuery(search="1042"), lambda row: "1042" in row["id"] or "1042" in row["input"]),
    (RowQuery(search=".*"), lambda row: False),
    (RowQuery(answer="wrong"), lambda row: row["right"] is False),
    (RowQuery(answer="right"), lambda row: row["right"]),
]


@pytest.mark.parametrize(("query", "holds"), QUERIES, ids=[str(n) for n in range(len(QUERIES))])
def test_the_rows_that_are_asked_for(
    explorer: Explorer, data: Path, answers: Path, query: RowQuery, holds: Any
) -> None:
    rows = t5prep.table(data, predictions=answers).read_all().to_pylist()
    chosen_rows = [row | {"number": number} for number, row in enumerate(rows) if holds(row)]
    assert query == RowQuery(search=".*") or chosen_rows
    for sort in ("", "input_tokens", "-input_tokens", "-input_cut", "-loss", "near_duplicates"):
        expected, column, sign = chosen_rows, sort.removeprefix("-"), -1 if sort.startswith("-") else 1
        if column:
            sortable_rows = [row for row in chosen_rows if row[column] is not None]
            sortable_rows.sort(key=lambda row, column=column, sign=sign: sign * row[column])  # type: ignore[misc]
            expected = sortable_rows + [row for row in chosen_rows if row[column] is None]
        page_rows: list[dict[str, Any]] = []
        for number in range(1, 9):
            page_rows += explorer.page_rows(
                RowQuery.read({**{k: str(v) for k, v in vars(query).items()}, "sort": sort, "page": str(number)})
            )
        assert page_rows == expected, sort


def test_an_address_says_what_it_was_made_of() -> None:
    query = RowQuery(search="a&b=\u202e<c>", min_tokens=3, sort="-loss", page=7)
    address = query.address(page=7)
    parameters = {name: values[-1] for name, values in urllib.parse.parse_qs(address.partition("?")[2]).items()}
    assert (RowQuery.read(parameters), RowQuery.read(parameters).page) == (query, 7)
    assert (
        RowQuery.read({"page": "0", "min_tokens": "-3", "max_tokens": "x", "sort": "DROP", "other": "1"}) == RowQuery()
    )


def test_a_row_has_its_tokens_and_its_life(served: Server, explorer: Explorer, data: Path) -> None:
    number = next(int(row_number) for row_number in explorer.rows(RowQuery(cut="yes", split="train")))
    row = explorer.row("records", number)
    row_page = page(served, f"/row?number={number}")
    tokens = re.findall(
        r'<span class="(?:text|tail|unknown)" title="[^"]*">([^<]*)</span>', row_page.partition('class="record"')[2]
    )
    spoken = html.unescape("".join(tokens)).replace(" ", "")
    assert spoken == re.sub(r"<extra_id_\d+>|</s>| ", "", row["input"]) + row["target"]
    assert row_page.count('<span class="marker"') == 2  # in the key, and in the record
    life = t5prep.why(row["id"], data)
    assert f"{life['source']['file']}, row {life['source']['row']:,}, byte {life['source']['byte']:,}" in row_page
    assert life["tokens"]["cut_input"]
    assert html.escape(life["tokens"]["cut_input"][0][:60]) in row_page
    assert f"t5prep why {row['id']} --data" in row_page


def test_a_wrong_answer_stands_with_its_record(served: Server, explorer: Explorer) -> None:
    list_page = page(served, "/?answer=wrong&sort=-loss")
    (first, *_) = re.findall(r"/row\?[^\"]*number=(\d+)", list_page)
    losses = [float(loss) for loss in re.findall(r'<td data-name="loss" class="n">(\d+\.\d{3})</td>', list_page)]
    assert losses == sorted(losses, reverse=True)
    assert losses
    row_page = page(served, f"/row?number={first}")
    assert "Answer of the model, wrong: <b>none of it</b>" in row_page


def test_from_a_row_its_neighbours_in_the_filter_and_their_page_are_reached(served: Server, explorer: Explorer) -> None:
    query = RowQuery(split="validation", answer="wrong", sort="-loss")
    rows, list_page, met = [int(row_number) for row_number in explorer.rows(query)], page(served, query.address()), []
    link: str | None = re.search(r'<td data-name="id"><a href="([^"]*)"', list_page)[1]
    while link:
        row_page = page(served, html.unescape(link))
        met.append(int(link.rpartition("=")[2]))
        assert html.unescape(re.search(r'<nav class="views"><a href="([^"]*)"', row_page)[1]) == query.address()
        match = re.search(r'<a href="([^"]*)" rel="next"', row_page)
        link = match and match[1]
    assert met == rows
    elsewhere = next(number for number in range(explorer.counts["records"]) if number not in rows)
    assert f'"/row?number={elsewhere + 1}" rel="next"' in page(served, query.address(number=elsewhere))


def test_near_duplicates_lead_to_each_other(served: Server, explorer: Explorer) -> None:
    (rejected,) = explorer.page_rows(RowQuery(view="rejected", reason="near duplicate"))
    row_page = page(served, f"/row?view=rejected&number={rejected['number']}")
    kept_row_link = html.unescape(re.search(r'<a href="(/\?search=[^"]*)"', row_page)[1])  # type: ignore[index]
    (number,) = re.findall(r"/row\?[^\"]*number=(\d+)", page(served, kept_row_link))
    assert explorer.row("records", int(number))["near_duplicates"] == 1
    rejected_link = html.unescape(
        re.search(r'<a href="(/\?view=rejected[^"]*search=[^"]*)"', page(served, f"/row?number={number}"))[1]
    )  # type: ignore[index]
    assert re.search(rf'"/row\?view=rejected&amp;[^"]*number={rejected["number"]}"', page(served, rejected_link))


def test_rejected_rows_have_their_reasons(served: Server) -> None:
    assert page(served, "/?view=rejected").count("/row?view=rejected&amp;number=") == 3
    assert "empty text" in page(served, "/?view=rejected&reason=empty+text")
    assert "No row matches" in page(served, "/?view=rejected&search=unheard-of")
    (near,) = served.explorer.page_rows(RowQuery(view="rejected", reason="near duplicate"))
    list_page = page(served, RowQuery(view="rejected", search=near["input"][:30]).address())
    assert near["input"].partition("\n")[0] in html.unescape(list_page)
    assert list_page.count("/row?view=rejected&amp;") == 1
    row_page = page(served, "/row?view=rejected&number=0")
    assert "Rejected: " in row_page
    assert "(at the step: task)" in row_page
    served.run = "runs/mine"
    assert "--run runs/mine" in page(served, "/row?number=0")
    assert "--run" not in page(served, "/row?view=rejected&number=0"), "no step saw it"


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/", {"Host": "evil.example"}, 403),
        ("/row?number=1", {"Host": "evil.example:8001"}, 403),
        ("/", {"Origin": "http://evil.example"}, 403),
        ("/", {"Origin": "null"}, 403),
        ("/elsewhere", {}, 404),
        ("/row?number=99999999999999999999", {}, 404),
        ("/row?number=-1", {}, 404),
        ("/row?view=tables&number=1", {}, 404),
        ("/?search=%00%ff%ed%a0%80&split=%1b[2J", {}, 200),
    ],
)
def test_who_may_ask_what(served: Server, path: str, headers: dict[str, str], status: int) -> None:
    assert served.server_address[0] == "127.0.0.1"
    with raises(UsageError, "option.port-unavailable", str(served.server_address[1])):
        Server(served.explorer, port=served.server_address[1])
    connection = http.client.HTTPConnection(*served.server_address[:2], timeout=300)
    connection.request("GET", path, headers=headers)
    assert connection.getresponse().status == status


@pytest.mark.parametrize("layout", ["ragged", "packed"])
def test_every_layout_can_be_looked_at(tmp_path: Path, layout: str) -> None:
    prepared(
        write_csv(tmp_path / "a.csv", questions(30)),
        tmp_path / "d",
        tokenizer="sample:",
        layout=layout,
        target_length=16,
    )
    with serving(Explorer(tmp_path / "d")) as served:
        assert "</s>" in html.unescape(page(served, "/row?number=0"))
        if layout == "packed":
            ids = served.explorer.row("records", 0)["id"]
            assert len(ids) > 1
            assert f"t5prep why {ids[1]} " in page(served, f"/row?number=0&id={ids[1]}")
            assert page(served, f"/?search={ids[1]}").count('<td data-name="id"><a href="/row') >= 1


def test_a_table_is_made_once(data: Path, explorer: Explorer) -> None:
    progress: list[int] = []
    Explorer(data, on_progress=progress.append)
    assert progress == []
    CliRunner().invoke(main, ["cache", "clear", "tables"])
    Explorer(data, on_progress=progress.append)
    assert sum(progress) == explorer.counts["records"] == len(explorer.table("records"))
    assert explorer.counts["rejected"] == len(explorer.table("rejected"))


def test_a_source_that_is_gone_is_a_sentence(tmp_path: Path) -> None:
    rows = questions(12)
    rows[5] |= {"Title": "", "Body": ""}
    source = write_csv(tmp_path / "a.csv", rows)
    prepared(source, tmp_path / "d", tokenizer="sample:")
    Path(source).unlink()
    (tmp_path / "moved").mkdir()
    with serving(Explorer(tmp_path / "d")) as served:
        assert "read again" in page(served, "/row?number=0")
        assert [row["input"] for row in served.explorer.page_rows(RowQuery(view="rejected"))] == [None]
    moved = write_csv(tmp_path / "moved" / "a.csv", rows)
    (rejected_row,) = Explorer(tmp_path / "d", SourceOptions(source=str(moved))).page_rows(RowQuery(view="rejected"))
    assert '"Body": ""' in rejected_row["input"]


def test_what_cannot_be_done_is_said(data: Path, tmp_path: Path) -> None:
    with raises(UsageError, "answer.missing", str(tmp_path)):
        explore.answers_of(str(tmp_path), None)
    with raises(UsageError, "run.unreadable", str(tmp_path / "none")):
        explore.answers_of(str(tmp_path / "none"), None)
    (tmp_path / "eval.json").write_text("{}")
    refused("answer.missing", str(tmp_path / "eval.json"), command=("explore", data, "--run", tmp_path))


# ──────────────────────────────────────────────────────────────────────────────────────────────── What strangers wrote ──

ODD = "</script></textarea></option>\"'><script>document.title='gone'</script><img src=x onerror=\"document.title='gone'\">"
CLASS = "</select><script>document.title</script>"  # no = and no comma may be in the name of a class
ESCAPES = "\x1b]0;gone\x07\x1b[2J\u202egone\u2066\x9b"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Markup, terminal escapes and half surrogates in texts, ids, class names and the name of the file."""
    folder = tmp_path_factory.mktemp("hostile")
    name = "<img src=x onerror=alert(1)>\x1b[2J.jsonl"
    rows = [
        {"id": f"{n}{ODD}{ESCAPES}", "text": f"{n} {ODD} {ESCAPES} words", "label": CLASS + "\x1b[2J\u202e" * (n % 2)}
        for n in range(24)
    ]
    rows += [
        {"id": None, "text": f"half \ud800 {ODD}", "label": "a"},
        {"id": "half \udfff", "text": ODD, "label": "\ud800"},
    ]
    (folder / "s").mkdir()
    (folder / "s" / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    choices = {"inputs_column": "text", "targets_column": "label", "id_column": "id"}
    for target in ("text", "class"):
        prepared(folder / "s", folder / target, tokenizer="sample:", task="text2text", options=choices, target=target)
    return folder


@pytest.mark.extra("chromium")
@pytest.mark.parametrize("target", ["text", "class"])
def test_what_strangers_wrote_stays_text(hostile: Path, target: str) -> None:
    with serving(Explorer(hostile / target)) as served:
        quoted = urllib.parse.quote(ODD)
        addresses = ["/", "/?view=rejected", f"/?target={urllib.parse.quote(CLASS)}", f"/?search={quoted}"]
        addresses += [f"/row?number={number}" for number in range(3)]
        addresses += [f"/row?view=rejected&number={number}" for number in range(served.explorer.counts["rejected"])]
        for address in addresses:
            page_text = page(served, address)
            assert "<script" not in page_text, address
            assert "<img" not in page_text, address
            assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page_text), address
        rendered_pages = browser.read(
            served.url, f"{served.url}row?number=0", f"{served.url}row?view=rejected&number=0"
        )
        assert all(
            "<title>" in rendered_page and "<title>gone" not in rendered_page for rendered_page in rendered_pages
        )


@pytest.mark.parametrize("damaged", ["shard", "rejected"])
def test_a_damaged_copy_does_not_reach_the_cache_of_the_good_one(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: str
) -> None:
    monkeypatch.setenv("T5PREP_CACHE", str(tmp_path / "cache"))
    copy = shutil.copytree(data, tmp_path / "copy")
    path = copy / ("rejected.jsonl" if damaged == "rejected" else t5prep.load(data).splits["train"].shards[0].name)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with raises(DatasetError, "dataset.altered", str(copy)):
        Explorer(copy).table("rejected")
    good = Explorer(data)
    assert good.table("records")["id"].to_pylist() == t5prep.table(data).read_all()["id"].to_pylist()
    assert len(good.table("rejected")) == t5prep.load(data).rejected_file.lines
