import gzip
from pathlib import Path

import pytest
from raised import raises

from t5prep import sources
from t5prep.errors import SourceError, UsageError
from t5prep.options.files import FileOptions
from t5prep.reading import blocks
from t5prep.reading.blocks import Pair

ENDINGS = ((".source", ".target"), (".en", ".ro"))


def raw(folder: Path) -> tuple[sources.RawFile, ...]:
    return sources.resolve(str(folder)).files


def rows(folder, **options):
    (pair,) = blocks.match(raw(folder), ENDINGS)
    scanned_blocks = list(blocks.scan_element(pair, FileOptions(), **options))
    return scanned_blocks, [row for block in scanned_blocks for row in blocks.read(block)]


def test_files_are_matched_by_their_endings(tmp_path):
    for name in ("train.source", "train.target", "dev.ro.gz", "dev.en.gz", "notes.jsonl"):
        (tmp_path / name).write_bytes(b"x\n")
    elements = blocks.match(raw(tmp_path), ENDINGS)
    names = {tuple(file.name for file in blocks.files(element)) for element in elements}
    assert names == {("train.source", "train.target"), ("dev.en.gz", "dev.ro.gz"), ("notes.jsonl",)}
    assert len(elements) == 3


def test_a_missing_partner_is_a_sentence(tmp_path):
    (tmp_path / "train.en").write_bytes(b"x\n")
    with raises(SourceError, "source.missing-pair", "train", "train.en", "train.ro"):
        blocks.match(raw(tmp_path), ENDINGS)


@pytest.mark.parametrize("block_bytes", [1, 100, 1 << 20])
def test_lines_stand_side_by_side_whatever_the_blocks(tmp_path, block_bytes):
    (tmp_path / "a.source").write_text("".join(f"source\t{i}\u2028\n" for i in range(50)), encoding="utf-8")
    (tmp_path / "a.target").write_bytes(b"".join(b"\xc8\x9binta %d\r\n" % i for i in range(50)))
    scanned_blocks, parsed_rows = rows(tmp_path, block_bytes=block_bytes)
    assert sum(block.rows for block in scanned_blocks) == 50
    assert [row.number for row in parsed_rows] == list(range(1, 51))
    assert [row.record for row in parsed_rows] == [
        {"source": f"source {i}\u2028", "target": f"ținta {i}"} for i in range(50)
    ]


def test_empty_lines_keep_their_places_and_broken_bytes_cost_one_row(tmp_path):
    (tmp_path / "a.en").write_bytes(b"one\n\nthree\nfour")
    (tmp_path / "a.ro").write_bytes(b"unu\n\ntr\xffi\npatru\n")
    _, parsed_rows = rows(tmp_path)
    assert [row.number for row in parsed_rows] == [1, 2, 3, 4]
    assert parsed_rows[1].record == {"source": "", "target": ""}
    assert parsed_rows[2].record is None
    assert parsed_rows[2].reason == "not utf-8: byte 0xff in target"
    assert parsed_rows[3].record == {"source": "four", "target": "patru"}


def test_packed_pairs_are_read(tmp_path):
    (tmp_path / "a.en.gz").write_bytes(gzip.compress(b"one\ntwo\n"))
    (tmp_path / "a.ro").write_bytes(b"unu\ndoi\n")
    assert [row.record["target"] for row in rows(tmp_path)[1]] == ["unu", "doi"]


@pytest.mark.parametrize("longer", ["source", "target"])
def test_a_side_with_more_lines_is_a_sentence(tmp_path, longer):
    for side in ("source", "target"):
        (tmp_path / f"a.{side}").write_bytes(b"x\n" * (3 if side == longer else 2))
    shorter = "target" if longer == "source" else "source"
    with raises(SourceError, "file.unequal-lines", str(shorter), str(longer), "2"):
        rows(tmp_path)


def test_a_lone_file_is_scanned_as_it_is(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"source": "x", "target": "y"}\n')
    (element,) = blocks.match(raw(tmp_path), ENDINGS)
    assert not isinstance(element, Pair)
    (block,) = blocks.scan_element(element, FileOptions())
    assert block.file == element


def test_a_name_that_says_no_format_has_that_of_its_task(tmp_path):
    (tmp_path / "train.ro").write_bytes("Bună.\n".encode())
    (element,) = blocks.match(raw(tmp_path), ())
    with raises(UsageError, "file.unknown-format"):
        list(blocks.scan_element(element, FileOptions()))
    (block,) = blocks.scan_element(element, FileOptions(), otherwise="text")
    assert [row.record for row in blocks.read(block)] == [{"text": "Bună."}]
