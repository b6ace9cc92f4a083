"""Rejected rows are one file, or parts that depend on nothing but the rows."""

import json

from t5prep.dataset import rejected_files
from t5prep.dataset.row_balance import RejectedFile


def lines(count: int) -> list[bytes]:
    return [
        json.dumps({"file": f"f{n % 3}", "row": n, "id": None, "reason": "x"}).encode() + b"\n" for n in range(count)
    ]


def test_neighbours_are_in_one_part_and_all_parts_are_used() -> None:
    parts = [rejected_files.part_of(line, parts=4) for line in lines(60_000)]
    assert set(parts) == {0, 1, 2, 3}
    changes = sum(one != other for one, other in zip(parts[::3], parts[3::3], strict=False))
    assert changes <= 60_000 // 1024 + 3
    assert {rejected_files.part_of(line, parts=1) for line in lines(9)} == {0}


def test_one_name_stands_for_all_parts() -> None:
    parts = [RejectedFile(rejected_files.numbered(n, 2), 10 + n, 100, f"{n}" * 64) for n in range(2)]
    whole = rejected_files.together(parts)
    assert (whole.name, whole.lines, whole.bytes) == ("rejected.jsonl@2", 21, 200)
    assert rejected_files.names(whole.name) == [part.name for part in parts]
    assert all(rejected_files.is_rejected(part.name) for part in parts)
    assert rejected_files.together(parts[:1]) == parts[0]
