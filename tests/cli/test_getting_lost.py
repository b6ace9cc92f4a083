"""Where people get lost: what they did is said, with what to type instead."""

import errno
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result
from raised import assert_error, raises
from small_corpora import questions, write_csv

from t5prep.cli import main
from t5prep.errors import T5prepError, UsageError
from t5prep.io import gcs, model_files
from t5prep.tokens import loading

COMMAND = [sys.executable, "-c", "from t5prep.cli import main; main()"]


def prepare(source: object, out: Path) -> Result:
    words = ["prepare", "text2text", "--source", str(source), "--tokenizer", "sample:", "--out", str(out)]
    return CliRunner().invoke(main, [*words, "--workers", "1", "--inputs-column", "Title", "--targets-column", "Y"])


def test_a_place_inside_the_source_is_refused(tmp_path: Path) -> None:
    """The first run worked, and the second read the shards of the first."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    write_csv(folder / "rows.csv", questions(9))
    for out in (folder / "out", folder):
        result = prepare(folder, out)
        assert result.exit_code == 1
        assert_error(result.stderr, "output.inside-source", str(out), str(folder))
    assert [path.name for path in folder.iterdir()] == ["rows.csv"]
    assert prepare(folder, tmp_path / "out").exit_code == 0


def test_a_licence_beside_the_rows_is_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    write_csv(folder / "rows.csv", questions(9))
    (folder / "LICENSE").write_text("Do what you like.\n")
    result = prepare(folder, tmp_path / "out")
    assert (result.exit_code, "about the data: LICENSE" in result.stderr) == (0, True)


def test_a_stranger_beside_the_rows_is_named_with_a_glob_that_works(tmp_path: Path) -> None:
    folder = tmp_path / "my corpus"
    (folder / "deep").mkdir(parents=True)
    write_csv(folder / "deep" / "rows.csv", questions(9))
    (folder / "notes").write_text("Do what you like.\n")
    refused = prepare(folder, tmp_path / "out")
    assert refused.exit_code == 1
    assert_error(refused.stderr, "file.unknown-format", "notes")
    (glob,) = shlex.split(refused.stderr.partition("--source ")[2].partition(" [")[0])
    assert prepare(glob, tmp_path / "out").exit_code == 0


def test_the_next_command_can_be_typed_as_it_stands(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "rows.csv", questions(9))
    out = tmp_path / "my $(data); dataset"
    (line,) = [line for line in prepare(source, out).stdout.splitlines() if line.startswith("next: ")]
    assert shlex.split(line.removeprefix("next: ")) == ["t5prep", "inspect", str(out)]


@pytest.mark.parametrize(
    ("typed", "code", "advice"),
    [
        (["eval", "runs/one"], "option.missing", "t5prep eval --model runs/one ..."),
        (["train", "data/one"], "option.missing", "t5prep train --data data/one --out RUN ..."),
        (["train", "data/one", "--out", "runs/one"], "option.unexpected-argument", "--data"),
        (["train", "--epochs", "3", "--out", "runs/one"], "option.unknown", "--set epochs=3"),
    ],
)
def test_a_value_without_its_option_and_a_setting_as_an_option(typed: list[str], code: str, advice: str) -> None:
    refused = CliRunner().invoke(main, typed)
    assert (refused.exit_code, "--replicas" in refused.stderr) == (2, False)
    assert_error(refused.stderr, code, advice)


def test_a_run_is_no_dataset(tmp_path: Path) -> None:
    (tmp_path / "train.json").write_text("{}")
    refused = CliRunner().invoke(main, ["inspect", str(tmp_path)])
    assert refused.exit_code == 1
    assert_error(refused.stderr, "dataset.run-folder", f"t5prep report {tmp_path} ")


@pytest.mark.parametrize("typed", [["--help"], ["tasks"]])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_or_a_closed_pipe_behind_stdout_is_at_most_one_sentence(typed: list[str], unbuffered: str) -> None:
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:
        ran = subprocess.run(
            [*COMMAND, *typed], stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=environment
        )
    assert (ran.returncode, len(ran.stderr.splitlines())) == (1, 1)
    assert_error(ran.stderr, "file.inaccessible", os.strerror(errno.ENOSPC))
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as closed:
        ran = subprocess.run(
            [*COMMAND, *typed], stdout=closed, stderr=subprocess.PIPE, text=True, check=False, env=environment
        )
    assert (ran.returncode, ran.stderr) == (1, "")


def test_a_current_folder_that_was_deleted(tmp_path: Path) -> None:
    words = "prepare so_quality --source sample: --tokenizer sample: --out d --workers 1"
    shell = f"cd {shlex.quote(str(tmp_path))} && mkdir gone && cd gone && rmdir ../gone && exec {shlex.join(COMMAND)} {words}"
    ran = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert_error(ran.stderr.splitlines()[-1], "terminal.deleted-folder", ": cd ")


def test_a_python_that_reads_no_utf_8_is_told_the_way_out(tmp_path: Path) -> None:
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ran = subprocess.run([*COMMAND, "tasks"], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert len(ran.stderr.splitlines()) == 1
    assert_error(ran.stderr, "install.non-utf8-locale", "ascii", "export PYTHONUTF8=1 ")


def test_a_limit_of_file_sizes_is_named(tmp_path: Path) -> None:
    words = ["prepare", "so_quality", "--source", "sample:", "--tokenizer", "sample:", "--workers", "1"]
    shell = f"ulimit -f 100; exec {shlex.join([*COMMAND, *words, '--out', str(tmp_path / 'd')])}"
    ran = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert_error(ran.stderr, "output.file-size-limit", "ulimit -f unlimited ")


def test_a_nul_in_a_name_is_refused(tmp_path: Path) -> None:
    import t5prep

    with raises(UsageError, "file.invalid-name"):
        t5prep.prepare("so_quality", source="sample:", tokenizer="sample:", out=f"{tmp_path}/a\0b", workers=0)
    with raises(T5prepError, "file.invalid-name"):
        t5prep.load(f"{tmp_path}/a\0b")


def test_a_pipe_is_no_tokenizer(tmp_path: Path) -> None:
    """Reading it would wait for ever."""
    os.mkfifo(tmp_path / "spiece.model")
    with raises(T5prepError, "tokenizer.unreadable", "spiece.model"):
        loading.load(str(tmp_path / "spiece.model"))


def test_a_pointer_of_git_lfs_is_not_weights(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 2\n")
    with raises(UsageError, "model.lfs-pointer", "model.safetensors"):
        model_files.find(tmp_path).read("model.safetensors")


def test_a_hub_that_does_not_answer_is_not_answered_by_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *_, **__: (_ for _ in ()).throw(OSError("no")))
    monkeypatch.setattr(
        huggingface_hub,
        "snapshot_download",
        lambda *_, **__: (_ for _ in ()).throw(OSError("no")),
    )
    with raises(T5prepError, "hub.unavailable", "google-t5/t5-base", "spiece.model"):
        loading.load("google-t5/t5-base")


@pytest.mark.parametrize(
    ("typed", "prefix", "completed"),
    [
        (["train", "--recipe"], "ti", "tiny"),
        (["train", "--set"], "epo", "epochs="),
        (["plan", "--recipe"], "ti", "tiny"),
    ],
)
def test_recipes_and_settings_are_completed(typed: list[str], prefix: str, completed: str) -> None:
    completions = ShellComplete(main, {}, "t5prep", "_T5PREP_COMPLETE").get_completions(typed, prefix)
    assert completed in [item.value for item in completions]


def test_a_bucket_that_does_not_answer_is_said_and_given_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:9")  # nobody listens on the port for discarding
    monkeypatch.setattr(gcs, "FIRST_SECONDS", 2.0)
    with raises(T5prepError, "bucket.unavailable", "gs://nobody/one"):
        gcs.read("gs://nobody/one")
    assert capsys.readouterr().err.startswith("gs://nobody does not answer (")
