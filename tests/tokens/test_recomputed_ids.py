"""Records beside raw SentencePiece: ids, the cut in the middle, EOS and -100, computed here anew from the rows.

The texts are this repository's own pages and the built-in sample's questions. Nothing of t5prep tokenizes, cuts or parses here.
"""

import csv
import io
from pathlib import Path

import pytest
import sentencepiece
from readme import PAGES, codes
from small_corpora import prepared, write_csv

from t5prep.sources import sample

EOS, PAD = 1, 0
WORDS = sentencepiece.SentencePieceProcessor(model_file=str(sample.tokenizer_path()))
# T5 puts its 100 sentinels behind the pieces, the first one last: <extra_id_1> is the last but one.
MARKER = WORDS.get_piece_size() + 98


def _read(data: Path) -> dict[str, dict[str, list]]:
    """Return the records of all splits by id, with the reader of docs/format.md, which is plain Python."""
    scope: dict = {}
    (reader,) = (code.text for code in codes("python") if "def varint" in code.text)
    exec(reader, scope)
    shards = {path.name.partition(".")[0] for path in data.glob("*.tfrecord-*")}
    return {record["id"][0].decode(): record for split in shards for record in scope["read"](data, split)}


def _padded(ids: list[int], length: int, filler: int) -> list[int]:
    assert len(ids) <= length
    return ids + [filler] * (length - len(ids))


def _cut(ids: list[int], length: int, policy: str) -> list[int]:
    """Return what stays of ids that end in EOS, in the words of the tutorial: the first 255, a sentinel, the last 256."""
    if len(ids) <= length:
        return ids
    tail = length // 2
    return {
        "head_tail": [*ids[: length - tail - 1], MARKER, *ids[-tail:]],
        "head": [*ids[: length - 1], EOS],
        "tail": ids[-length:],
    }[policy]


def _paragraphs() -> list[str]:
    texts = [text.strip() for page in PAGES for text in page.read_text(encoding="utf-8").split("\n\n")]
    return list(dict.fromkeys(text for text in texts if text))


@pytest.mark.parametrize(("policy", "length"), [("head_tail", 64), ("head_tail", 33), ("head", 64), ("tail", 64)])
def test_the_ids_of_a_table(tmp_path: Path, policy: str, length: int) -> None:
    """Inputs with a prefix; targets that are cut at their end."""
    rows = [{"n": f"p{n}", "text": text, "said": text[-120:]} for n, text in enumerate(_paragraphs())]
    prepared(
        write_csv(tmp_path / "rows.csv", rows), tmp_path / "out", task="text2text", tokenizer="sample:",
        options={"inputs": "{text}", "targets_column": "said", "id_column": "n"}, truncation=policy,
        input_length=length, target_length=16, splits={"train": 0.9, "validation": 0.1},
    )  # fmt: skip
    records = _read(tmp_path / "out")
    assert len(records) == len(rows) > 150
    cut = 0
    for row in rows:
        ids, target = ([*WORDS.encode(row[column].strip()), EOS] for column in ("text", "said"))
        assert records[row["n"]]["input_ids"] == _padded(_cut(ids, length, policy), length, PAD), row
        assert records[row["n"]]["labels"] == _padded(_cut(target, 16, "head"), 16, -100), row
        cut += len(ids) > length
    assert 50 < cut < len(rows)


def test_the_ids_of_the_samples_questions(tmp_path: Path) -> None:
    """As in the tutorial: `quality: `, title, EOS, body, EOS, of more than 512 the first 255, a sentinel and the last 256."""
    rows = list(csv.DictReader(io.StringIO(sample.rows().decode("utf-8"))))[:600]
    prepared(
        write_csv(tmp_path / "rows.csv", rows), tmp_path / "out", tokenizer="sample:", splits={"train": 1.0}
    )  # fmt: skip
    records = _read(tmp_path / "out")
    words = {"LQ_CLOSE": "none", "LQ_EDIT": "low", "HQ": "high"}
    labelled_rows = [row for row in rows if row["Body"].strip() and row["Y"] in words]
    assert records.keys() == {row["Id"] for row in labelled_rows}
    lengths = []
    for row in labelled_rows:
        ids = [*WORDS.encode("quality: " + row["Title"]), EOS, *WORDS.encode(row["Body"]), EOS]
        assert records[row["Id"]]["input_ids"] == _padded(_cut(ids, 512, "head_tail"), 512, PAD), row["Id"]
        assert records[row["Id"]]["labels"] == [*WORDS.encode(words[row["Y"]]), EOS], row["Id"]
        lengths.append(len(ids))
    assert max(lengths) > 512


def test_span_corruption_hides_what_stands_in_its_targets(tmp_path: Path) -> None:
    """Each row put together again is a run of the documents' ids; hidden are 15 % of them, in spans of three."""
    texts = [" ".join(text.split()) for text in _paragraphs()]
    (tmp_path / "lines.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    prepared(
        tmp_path / "lines.txt", tmp_path / "out", task="span_corruption", tokenizer="sample:", input_length=128,
        splits={"train": 1.0},
    )  # fmt: skip
    documents = [[*WORDS.encode(text), EOS] for text in texts]
    first_sentinel = WORDS.get_piece_size() + 99
    hidden, spans, rows = 0, 0, []
    for record in _read(tmp_path / "out").values():
        inputs, labels = (
            [token for token in record[name] if token not in (PAD, -100)] for name in ("input_ids", "labels")
        )
        assert inputs[-1] == labels[-1] == EOS
        answers: dict[int, list[int]] = {}
        for token in labels[:-1]:
            if token > WORDS.get_piece_size():
                answers[sentinel := token] = []
            else:
                answers[sentinel].append(token)
        sentinels = [token for token in inputs if token > WORDS.get_piece_size()]
        if len(inputs) == 2:
            # The last row may have a single token. As in T5, it is not hidden, but its targets begin with a sentinel.
            assert (sentinels, answers) == ([], {first_sentinel: []})
            answers = {}
        assert sentinels == list(answers) == [first_sentinel - n for n in range(len(sentinels))]  # they count down
        restored_ids = [part for token in inputs[:-1] for part in answers.get(token, [token])]
        hidden, spans = hidden + sum(map(len, answers.values())), spans + len(sentinels)
        rows.append(restored_ids)
    tokens = sum(map(len, rows))
    assert abs(hidden / tokens - 0.15) < 0.005
    assert abs(hidden / spans - 3) < 0.1
    # Rows hold documents end to end, so each row is made of runs of documents; all ids are there, none twice.
    assert sorted(token for row in rows for token in row) == sorted(
        token for document in documents for token in document
    )
