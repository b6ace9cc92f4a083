"""One process at a time trains into a run's directory."""

from pathlib import Path

import pytest

pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

from t5prep.errors import OutputError
from t5prep.train.run import run_lock


def test_a_run_is_held_until_the_process_that_trains_it_ends(tmp_path: Path) -> None:
    out = tmp_path / "runs" / "one"
    with run_lock.held(str(out)):
        (out / "train.json").write_text("{}")
        with (
            pytest.raises(OutputError, match=r"one is being trained by another process\. Wait until it ends, or"),
            run_lock.held(str(out)),
        ):
            pass
        with run_lock.held(str(tmp_path / "runs" / "two")):
            pass
    with run_lock.held(str(out)):
        pass
    assert [path.name for path in out.iterdir()] == ["train.json"]


def test_what_never_began_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no"), run_lock.held(str(tmp_path / "new")):
        raise ValueError("no")
    assert not (tmp_path / "new").exists()
    (tmp_path / "empty").mkdir()
    with run_lock.held(str(tmp_path / "empty")):
        pass
    assert (tmp_path / "empty").is_dir()


def test_a_place_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for out in ("file", "file/run"):
        with (
            pytest.raises(OutputError, match=r"cannot be written \(.+\)\. Choose another --out"),
            run_lock.held(str(tmp_path / out)),
        ):
            pass
