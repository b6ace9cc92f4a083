"""`t5prep tokenizer train`: from a corpus to a directory that AutoTokenizer loads and that gives the same ids."""

import csv
import functools
import io
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from raised import raises, refused

from pipelines import train_tokenizer
from t5prep import sources
from t5prep.cli import main
from t5prep.errors import OutputError, SourceError, UsageError
from t5prep.options.files import FileOptions
from t5prep.options.tokenizers import TokenizerOptions, UnigramOptions
from t5prep.sources import sample
from t5prep.tokens import audit, huggingface_files, loading, tokenizer_training
from t5prep.tokens.tokenizer import Tokenizer
from t5prep.tokens.tokenizer_training import Drawing

ROWS = csv.DictReader(io.StringIO(sample.rows().decode(), newline=""))
LINES = [line.strip() for row in list(ROWS)[:300] for line in row["Body"].splitlines() if line.strip()]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return path


def run(*args: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["tokenizer", *args])
    return result.exit_code, result.output


def test_t5s_conventions():
    tokenizer = Tokenizer(tokenizer_training.train(LINES, UnigramOptions(vocab_size=400)), name="new")
    assert [tokenizer.piece(id) for id in range(3)] == ["<pad>", "</s>", "<unk>"]
    assert (tokenizer.pad_id, tokenizer.eos_id, tokenizer.unk_id, tokenizer.processor.bos_id()) == (0, 1, 2, -1)
    assert (tokenizer.vocab_size, tokenizer.size, tokenizer.padded_size) == (400, 500, 512)
    assert tokenizer.sentinel(0) == 499
    assert tokenizer.facts.normalizer == "nmt_nfkc"
    assert tokenizer.unk_id in tokenizer.encode("☃")


def test_options_of_training():
    plain = Tokenizer(tokenizer_training.train(LINES, UnigramOptions(vocab_size=1500)), name="plain")
    digits = Tokenizer(
        tokenizer_training.train(LINES, UnigramOptions(vocab_size=1500, split_digits=True)), name="digits"
    )
    assert len(plain.encode("2020")) < 4
    assert digits.processor.encode("2020", out_type=str)[-4:] == ["2", "0", "2", "0"]
    full = Tokenizer(tokenizer_training.train(LINES, UnigramOptions(vocab_size=700, byte_fallback=True)), name="bytes")
    assert full.unk_id not in full.encode("☃ Ω")
    assert full.decode(full.encode("☃ Ω")) == "☃ Ω"


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (100_000, ("tokenizer.oversized-vocabulary",)),
        (10, ("tokenizer.undersized-vocabulary",)),
        (1, ("option.out-of-range",)),
        (-5, ("option.out-of-range",)),
    ],
)
def test_a_vocabulary_that_cannot_be_had(size: int, message: tuple[str, ...]):
    with raises(UsageError, *message):
        tokenizer_training.train(LINES, UnigramOptions(vocab_size=size))


@pytest.mark.extra("seeds")
@pytest.mark.parametrize("byte_fallback", [False, True])
def test_the_directory_gives_the_same_ids_on_real_text(byte_fallback: bool, shared_data: Path, tmp_path: Path):
    import transformers

    texts = [
        line.rstrip("\n")
        for name in ("english/wikitext2_valid.txt", "romanian/RO-STS.train.ro")
        for line in (shared_data / name).read_text(encoding="utf-8").split("\n")
    ]
    drawing = Drawing(1500, seed=0)
    drawing.add(line for text in texts for line in tokenizer_training.lines_of(text))
    lines = drawing.lines()
    model = tokenizer_training.train(
        lines, UnigramOptions(vocab_size=1500, byte_fallback=byte_fallback, split_digits=byte_fallback)
    )
    tokenizer = Tokenizer(model, name="new")
    huggingface_files.write(tmp_path, tokenizer, config={"model_type": "t5", "d_model": 64})
    auto = transformers.AutoTokenizer.from_pretrained(tmp_path, local_files_only=True)
    encoders = {
        "tokenizers": audit.encode_by((tmp_path / "tokenizer.json").read_bytes(), name="new"),
        "transformers": lambda texts: auto(texts, add_special_tokens=False, verbose=False)["input_ids"],
    }
    # What spells a special token differs, and is pinned down in test_identity.py.
    texts = [text for text in texts[::3] if "<unk>" not in text]
    expected = tokenizer.processor.encode(texts)
    assert len(texts) > 4000
    for name, encode in encoders.items():
        different = [(a, list(b)) for a, b in zip(expected, encode(texts), strict=True) if a != list(b)]
        assert all(audit.tied(a, b, tokenizer) for a, b in different), name
        assert len(different) <= 2
    text = "In 1999 the naïve  fox — ☃?"
    assert auto(text)["input_ids"] == [*tokenizer.encode(text), tokenizer.eos_id]
    assert auto.convert_tokens_to_ids(["<extra_id_0>", "<extra_id_99>"]) == [
        tokenizer.sentinel(0),
        tokenizer.sentinel(99),
    ]
    assert len(auto) == tokenizer.size
    assert (auto.pad_token_id, auto.eos_token_id, auto.unk_token_id) == (0, 1, 2)
    if byte_fallback:
        assert auto.decode(auto(text)["input_ids"], skip_special_tokens=True) == "In 1999 the naïve fox — ☃?"
    config = transformers.AutoConfig.from_pretrained(tmp_path, local_files_only=True)
    assert (config.vocab_size % 128, config.vocab_size - tokenizer.size < 128) == (0, True)


def test_the_sample_is_the_same_from_any_order_and_blocks(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file_sample = train_tokenizer.draw(sources.resolve(str(text)), TokenizerOptions(lines=50), workers=1)
    parts = tmp_path / "parts"
    parts.mkdir()
    for part in range(3):
        (parts / f"{part}.txt").write_text("\n".join(reversed(LINES[part::3])), encoding="utf-8")
    parts_sample = train_tokenizer.draw(sources.resolve(str(parts / "*.txt")), TokenizerOptions(lines=50), workers=2)
    assert file_sample == parts_sample
    assert (file_sample.rows, file_sample.total_lines, file_sample.broken, len(file_sample.lines)) == (
        len(LINES),
        len(LINES),
        0,
        50,
    )
    drawing = Drawing(50, seed=0)
    drawing.add(LINES)
    assert file_sample.lines == drawing.lines()


@pytest.mark.slow
def test_train_and_check_on_the_command_line(tmp_path: Path):
    """A vocabulary that the two commands train and check; the other tests call functions."""
    out = tmp_path / "tokenizer"
    columns = ("--source", "sample:", "--column", "Title", "--column", "Body")
    train = ("train", *columns, "--vocab-size", "600", "--lines", "3000", "--size", "tiny", "--out", str(out))
    code, output = run(*train)
    assert code == 0, output
    assert "600 pieces and 100 sentinels (an embedding of 768), from 3,000 of" in output
    assert {path.name for path in out.iterdir()} == {*huggingface_files.NAMES, "t5prep_training.json"}
    previous_contents = {path.name: path.read_bytes() for path in out.iterdir()}
    code, output = run(*train, "--workers", "1", "--json")
    assert json.loads(output)["vocab_size"] == 600
    assert {path.name: path.read_bytes() for path in out.iterdir()} == previous_contents
    code, output = run("check", str(out), *columns, "--limit", "200", "--json")
    report = json.loads(output)
    assert report["texts"] == 398  # one row has neither title nor body
    assert report["agreements"]["the folder's tokenizer.json"]["unexplained"] == 0
    code, output = run("check", "sample:", *columns, "--limit", "100")
    assert "newline" in output
    assert "advice" in output


def test_errors_are_sentences(text: Path, tmp_path: Path):
    source = sources.resolve(str(text))
    strange = tmp_path / "strange"
    strange.mkdir()
    (strange / "thesis.doc").write_text("x")
    with raises(OutputError, "output.foreign-file"):
        train_tokenizer.train(source, TokenizerOptions(), out=strange, config={})
    with raises(SourceError, "column.missing"):
        train_tokenizer.train(source, TokenizerOptions(column=("body",)), out=tmp_path / "new", config={})
    with raises(UsageError, "option.out-of-range", "0"):
        TokenizerOptions(lines=0)
    with raises(UsageError, "option.out-of-range", "7"):
        UnigramOptions(character_coverage=7)
    with raises(UsageError, "option.inapplicable"):
        train_tokenizer.train(source, TokenizerOptions(), out=tmp_path / "new", config={}, runner="dataflow")
    command = ("tokenizer", "check", "sample:", "--source", "sample:")
    refused("column.missing", "questions.csv", '"text"', "--column", command=command)


def test_the_record_has_the_columns_with_text_and_those_of_a_table_without_header(text: Path) -> None:
    """The second replaced the first, so a tokenizer of another column was taken for this one."""
    options = TokenizerOptions(column=("body",), files=FileOptions(columns="id,body"))
    record = train_tokenizer._training_record(sources.resolve(str(text)), options, {})
    assert (record["column"], record["columns"]) == (["body"], "id,body")


def test_a_tokenizer_that_was_trained_otherwise_is_never_replaced(text: Path, tmp_path: Path):
    """Texts that were prepared with it would no longer be what they say."""
    out = tmp_path / "out"
    train = ("train", "--source", str(text), "--lines", "300", "--out", str(out), "--workers", "1", "--vocab-size")
    assert run(*train, "400")[0] == 0
    previous_contents = {path.name: path.read_bytes() for path in out.iterdir()}
    refused("output.different-settings", str(out), command=("tokenizer", *train, "500"))
    assert {path.name: path.read_bytes() for path in out.iterdir()} == previous_contents
    assert run(*train, "400")[0] == 0
    assert {path.name: path.read_bytes() for path in out.iterdir()} == previous_contents
    (out / "t5prep_training.json").unlink()
    refused("output.different-settings", str(out), command=("tokenizer", *train, "400"))


def test_of_a_source_with_splits_only_train_is_read(tmp_path: Path) -> None:
    (source := tmp_path / "source").mkdir()
    for name in ("train", "validation"):
        (source / f"{name}.txt").write_text("\n".join(f"{name} {line}" for line in LINES))
    command = ["tokenizer", "train", "--source", str(source), "--out", str(tmp_path / "out"), "--vocab-size", "300"]
    command += ["--lines", "300", "--workers", "1"]
    result = CliRunner().invoke(main, command)
    assert ", not validation" in result.output
    trained_on = json.loads((tmp_path / "out" / "t5prep_training.json").read_text())
    assert [name for name, _ in trained_on["source"]["files"]] == ["train.txt"]


def test_case_is_folded_where_it_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "rows.txt"
    path.write_text("".join(f"Word Number {i} AND {i * i} in CAPITALS\n" for i in range(400)))
    line = ["tokenizer", "train", "--source", str(path), "--vocab-size", "100", "--lowercase", "--workers", "1"]
    result = CliRunner().invoke(main, [*line, "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    model = loading.load(str(tmp_path / "out"))
    assert model.encode("CAPITALS in Word") == model.encode("capitals IN word")
    assert json.loads((tmp_path / "out" / "t5prep_training.json").read_text())["normalization"] == "nmt_nfkc_cf"


@pytest.mark.parametrize(("rule", "is_same"), [("nmt_nfkc", True), ("identity", False)])
def test_text_is_normalized_by_the_rule_that_is_named(tmp_path: Path, rule: str, is_same: bool) -> None:
    path = tmp_path / "rows.txt"
    path.write_text("".join(f"a ﬁne ﬁle {i} and a fine file {i * i}\n" for i in range(400)), encoding="utf-8")
    line = [
        "tokenizer",
        "train",
        "--source",
        str(path),
        "--vocab-size",
        "60",
        "--normalization",
        rule,
        "--workers",
        "1",
    ]
    result = CliRunner().invoke(main, [*line, "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    model = loading.load(str(tmp_path / "out"))
    assert (model.encode("a ﬁne ﬁle") == model.encode("a fine file")) == is_same


def interrupt_while_a_child_computes() -> None:
    """Send Ctrl-C to this process once its child has computed for a second, however long it waits for a core before."""
    while not (children := multiprocessing.active_children()):
        time.sleep(0.02)
    while processor_seconds(children[0].pid or 0) < 1:
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGINT)


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_ctrl_c_ends_training_at_once_and_leaves_nothing() -> None:
    """SentencePiece itself does not look at signals for the many seconds that this takes."""
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=9)) for _ in range(100_000)]
    lines = [" ".join(words[first : first + 8]) for first in range(0, len(words), 8)]
    threading.Thread(target=interrupt_while_a_child_computes, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        train_tokenizer._run_apart(functools.partial(tokenizer_training.train, lines, UnigramOptions()))
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("name", ["a b", pytest.param("long" * 30, marks=pytest.mark.slow)])
def test_a_killed_training_leaves_no_temporary_folder_after_the_next_one(text: Path, tmp_path: Path, name: str) -> None:
    """All its processes are killed while it trains. Paths that are too long for sockets are no hindrance."""
    line = [sys.executable, "-m", "t5prep.cli", "tokenizer", "train", "--source", str(text), "--workers", "1"]
    line += ["--out", str(tmp_path / "out"), "--vocab-size", "400"]
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        temporary = Path(short, name)
        temporary.mkdir()
        environment = {**os.environ, "TMPDIR": str(temporary), "T5PREP_CACHE": str(tmp_path / "cache")}
        temp_root = Path("/tmp") if len(name) > 40 else temporary

        def folders() -> set[Path]:
            return {path.parent.parent for path in temp_root.glob(".unfinished-t5prep-*/pymp-*/listener-*")}

        earlier_folders = folders()
        killed = subprocess.Popen(line, env=environment, start_new_session=True, stderr=subprocess.DEVNULL)
        while not (new_folders := folders() - earlier_folders):
            assert killed.poll() is None
            time.sleep(0.02)
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
        assert all(folder.is_dir() for folder in new_folders)
        result = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert result.returncode == 0, result.stderr
        assert not any(folder.exists() for folder in new_folders)
        assert not list(temporary.iterdir())
