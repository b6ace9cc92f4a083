"""Good files of every stage and damaged ones: copies with something wrong in them, command lines over these, and files as
nobody should write them with what an independent reader makes of them.

That reader knows nothing of blocks: it splits the decoded text of a file at line ends and hands the lines to Python's csv
module, from the next line on wherever that refuses one.
"""

import codecs
import contextlib
import csv
import gzip
import hashlib
import io
import json
import os
import random
import re
import shutil
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import click
import encoders
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from small_corpora import prepared, questions, write_csv

from t5prep.cli import main
from t5prep.sources import sample

SOURCES = ("rows.csv", "rows.tsv", "rows.jsonl", "rows.json", "rows.jsonl.gz", "rows.jsonl.zst", "rows.parquet")


def make(folder: Path, *, training: bool) -> None:
    """Write the parts of the kit, a folder or a file each; those of training are also wanted with `training`."""
    folder.mkdir()
    _sources(folder)
    shutil.copy(sample.tokenizer_path(), folder / "spiece.model")
    encoders.bert(folder / "bert")
    encoders.roberta(folder / "roberta")
    options = {"tokenizer": "sample:", "input_length": 32}
    prepared(folder / "rows.csv", folder / "data", shards=2, **options)
    prepared(folder / "rows.csv", folder / "packed", layout="packed", target_length=8, **options)
    (folder / "filter.py").write_text('def no_menus(text):\n    return "menu" if "menu" in text else ""\n')
    foreign_folder = folder / "others"
    (foreign_folder / "theirs").mkdir(parents=True)
    (foreign_folder / "notes.txt").write_text("nobody may change this\n")
    (foreign_folder / "theirs" / "letter.txt").write_text("nor this\n")
    if training:
        _runs(folder)


def _sources(folder: Path) -> None:
    """Write the same rows in each format, and lines of text."""
    rows = questions(30, words=12)
    write_csv(folder / "rows.csv", rows)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    table = ["\t".join(["Id", "Title", "Body", "Y"])]
    table += ["\t".join(value.replace("\n", " ") for value in row.values()) for row in rows]
    (folder / "rows.tsv").write_text("\n".join(table) + "\n")
    (folder / "rows.jsonl").write_text(lines)
    (folder / "rows.json").write_text(json.dumps(rows, indent=1))
    (folder / "rows.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    (folder / "rows.jsonl.zst").write_bytes(pa.Codec("zstd").compress(lines.encode()).to_pybytes())
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows), folder / "rows.parquet")
    (folder / "lines.txt").write_text("".join(row["Title"] + "\n" for row in rows))


def _runs(folder: Path) -> None:
    """Write a run of four steps, and the model that it makes in each format."""
    import model_formats
    import toy_runs

    import t5prep
    from t5prep.training.model.weight_layout import weight_layouts
    from t5prep.training.model.weights import load_weights
    from t5prep.training.publish.export import export_hf

    shape = toy_runs.shape(folder / "shape")
    config = toy_runs.config(str(folder / "data"), shape, folder / "run", steps=4, eval_every=2)
    values = {name: value for name, value in vars(config).items() if name not in ("data", "model", "out")}
    t5prep.train(data=str(folder / "data"), model=shape, out=str(folder / "run"), settings=values)
    export_hf(str(folder / "run"), out=folder / "safetensors")
    loaded, weights = load_weights(folder / "safetensors")[:2]
    tensors = {}
    for name, layout in weight_layouts(loaded).items():
        rows = np.asarray(weights[name]).reshape(-1, *layout.shape[layout.stacked_axes :])
        tensors |= {t: row.T if layout.transposed else row for t, row in zip(layout.tensors, rows, strict=True)}
    for name, write, file in (
        ("pytorch", model_formats.write_pytorch, "pytorch_model.bin"),
        ("flax", model_formats.write_flax, "flax_model.msgpack"),
    ):
        shutil.copytree(folder / "safetensors", folder / name)
        (folder / name / "model.safetensors").unlink()
        write(folder / name / file, tensors)


MOST_LINES = 3
# Lines on stderr that tell how far a command is, and what it does: progress, which may have any length.
PROGRESS = re.compile(
    r"step [0-9,]+( of |/)|[0-9,]+ steps|Resuming |Compiling the step |Checkpoints take|The step is compiled|[0-9,]+ parameters|"
    r"step [0-9,]+ evaluated|.* of [0-9.,]+ [kMG]?B|\s*$|Trying |Usage: |Try 't5prep"
)
# What libraries print for their own programmers.
NOISE = re.compile(
    r"Traceback \(most recent call last\)|[A-Za-z]*Warning: |^[WEIF]0000 |^WARNING:|absl|libtpu|resource_tracker|^  File \"",
    re.MULTILINE,
)


def damaged(content: bytes, draw: random.Random) -> bytes:
    """Return the same file with something wrong somewhere."""
    if not content:
        return b"\0"
    offset = draw.randrange(len(content))
    damaged_bytes = bytearray(content)
    match draw.randrange(8):
        case 0:
            damaged_bytes[offset] ^= 1 << draw.randrange(8)
        case 1:
            damaged_bytes = damaged_bytes[:offset]
        case 2:
            damaged_bytes[offset : offset + draw.randrange(1, 64)] = b""
        case 3:
            damaged_bytes[offset:offset] = draw.randbytes(draw.randrange(1, 64))
        case 4:
            damaged_bytes[offset : offset + 32] = bytes(32)
        case 5:
            damaged_bytes += damaged_bytes[offset:]
        case 6:
            damaged_bytes = bytearray()
        case _:
            source_offset, size = draw.randrange(len(content)), draw.randrange(1, 200)
            damaged_bytes[offset : offset + size] = content[source_offset : source_offset + size]
    return bytes(damaged_bytes)


def damage(folder: Path, draw: random.Random) -> str:
    """Damage, remove, or replace by a folder one file of a folder (or the file itself), and return which and how."""
    files = [folder] if folder.is_file() else sorted(path for path in folder.rglob("*") if path.is_file())
    path = draw.choice(files)
    original_bytes = path.read_bytes()
    path.unlink()
    chance = draw.random()
    if chance < 0.05:
        return f"{path.name} is gone"
    if chance < 0.08:
        path.mkdir()
        return f"{path.name} is a folder"
    path.write_bytes(damaged(original_bytes, draw))
    return f"{path.name} is damaged"


def content(folder: Path) -> dict[str, str]:
    """Return a digest of each file under a folder by its path."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def fault(line: list[str]) -> str:
    """Return what went wrong with a command line that no person should see; "" when all is well."""
    with _descriptor(2) as noise:
        result = CliRunner().invoke(main, line, input="a line\n{}\n")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return "".join(traceback.format_exception(result.exception))
    if result.exit_code not in (0, 1, 2):
        return f"exit code {result.exit_code}"
    if result.exit_code and not result.output.strip():
        return "it fails and says nothing"
    lines = [line for line in result.stderr.split("\n") if not PROGRESS.match(line)]
    if len(lines) > MOST_LINES and result.exit_code:
        return f"{len(lines)} lines on stderr:\n{result.stderr}"
    printed = result.stderr + "".join(noise)
    return f"noise:\n{printed}" if NOISE.search(printed) or "".join(noise).strip() else ""


@contextlib.contextmanager
def _descriptor(number: int) -> Iterator[list[str]]:
    """Collect what is written to a file descriptor: libraries in C do not know Python's streams."""
    written: list[str] = []
    sys.stderr.flush()
    with tempfile.TemporaryFile() as file:
        saved_descriptor = os.dup(number)
        os.dup2(file.fileno(), number)
        try:
            yield written
        finally:
            os.dup2(saved_descriptor, number)
            os.close(saved_descriptor)
            file.seek(0)
            written.append(file.read().decode(errors="replace"))


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Refuse the network, workers, the TPU compiler and waiting; keep the cache in a folder; stop servers at once."""
    from pipelines import prepare
    from t5prep.cli import _checks
    from t5prep.errors import UsageError
    from t5prep.io import gcs
    from t5prep.planning import compiled
    from t5prep.sources import http

    def refuse(*_: object, **__: object) -> None:
        raise OSError(101, "Network is unreachable")

    def stop(*_: object, **__: object) -> None:
        raise UsageError("here the compiler would start", code="option.missing")

    executor = prepare._executor  # its pool has no process
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", refuse)
        patch.setattr(socket, "create_connection", refuse)
        patch.setattr(socket, "getaddrinfo", refuse)
        patch.setattr(time, "sleep", lambda seconds: None)
        patch.setattr(http, "_sleep", lambda seconds: None)
        patch.setattr(gcs, "retry", lambda uri: None)  # Google's client would try again until a time is over
        patch.setattr(prepare, "_executor", lambda work, *, source, workers: executor(work, source=source, workers=0))
        patch.setattr(compiled, "_run", stop)
        patch.setattr(_checks, "run_python", lambda *_: {"error": "not asked here"})
        patch.setenv("HOME", str(folder))
        patch.setenv("T5PREP_CACHE", str(folder / "cache"))
        patch.chdir(folder)
        yield


TOKENIZERS = ["spiece.model", "bert", "roberta"]
MODELS = ("run", "run", "safetensors", "pytorch", "flax")
# Options that need other machines, wait for ever, or compile a program for each value.
NEVER = {
    "runner",
    "tpu",
    "gpus",
    "profile",
    "help",
    "overwrite",
    "bucket",
    "settings",
}
GOOD = {"column": ["Title", "Body", "nothing"], "format": ["csv", "jsonl", "text"], "split": ["train", "validation"]}
GOOD |= {"filter": ["gopher", "addresses:do=mask", "{filter.py}:no_menus"], "near_words": ["3"], "limit": ["1", "5"]}
GOOD |= {"decontaminate": ["{data}", "{rows.jsonl}"], "splits": ["validation=5"], "checkpoint": ["best", "last", "2"]}
GOOD |= {
    "to": ["csv", "jsonl"],
    "encoding": ["utf-8", "cp1252"],
    "settings_": ["batch=4"],
    "predictions": ["here.json"],
}
COMPILED = {
    "beams",
    "max_length",
    "min_length",
    "top_k",
    "top_p",
    "temperature",
    "no_repeat_ngram",
    "sample",
    "answers",
}


class Lines:
    """Draw command lines; {name} in one stands for a part of the kit, OUT for a new place."""

    def __init__(self, draw: random.Random, *, training: bool) -> None:
        self.draw = draw
        self.training = training
        self.tokenizers = [*TOKENIZERS, *(["safetensors"] if training else [])]
        self.commands = dict(commands(main))

    def line(self) -> list[str]:
        """Return the words of a command line."""
        kinds: list[Callable[[], list[str]]] = [
            *(self._prepare,) * 4,
            *(self._dataset,) * 3,
            *(self._tokenizer, self._other_line),
            *((self._train, self._model, self._model, self._model) if self.training else ()),
        ]
        words = self.draw.choice(kinds)()
        path = tuple(words[:2]) if tuple(words[:2]) in self.commands else tuple(words[:1])
        for _ in range(self.draw.choice([0, 0, 1, 2])):
            words += self._option(path, words)
        return words

    def _option(self, path: tuple[str, ...], words: list[str]) -> list[str]:
        """Return one more option with a value of its type."""
        options = [candidate for candidate in self.commands[path].params if isinstance(candidate, click.Option)]
        fitting = [
            candidate
            for candidate in options
            if candidate.name not in NEVER | COMPILED and not set(candidate.opts) & set(words)
        ]
        if not fitting:
            return []
        option = self.draw.choice(fitting)
        if option.is_flag:
            return [option.opts[0]]
        name, kind = str(option.name), option.type
        values = GOOD.get(name) or ["1", "2", "8"]
        if isinstance(kind, click.Choice):
            values = [str(choice) for choice in kind.choices]
        elif isinstance(kind, click.types.FloatParamType):
            values = ["0.5", "1"]
        elif not isinstance(kind, click.types.IntParamType) and name not in GOOD:
            return []
        return [option.opts[0], self.draw.choice(values)]

    def _out(self) -> str:
        """Return where something new goes: mostly a new place, sometimes one that belongs to somebody."""
        return self.draw.choice(["OUT", "OUT", "OUT", "OUT", "{others}/notes.txt", "{others}/theirs"])

    def _source(self) -> str:
        return f"{{{self.draw.choice(SOURCES)}}}"

    def _prepare(self) -> list[str]:
        tokenizer = self.draw.choice(["sample:", "sample:", *(f"{{{name}}}" for name in self.tokenizers)])
        task = self.draw.choice(
            [
                ["so_quality", "--source", self._source()],
                ["text2text", "--inputs-column", "Title", "--targets-column", "Y", "--source", self._source()],
                ["span_corruption", "--source", "{lines.txt}", "--target-length", "16"],
            ]
        )
        extra_options = self.draw.choice([[], [], ["--dedup", "exact"], ["--dedup", "near"], ["--layout", "packed"]])
        return [
            "prepare",
            *task,
            "--tokenizer",
            tokenizer,
            "--input-length",
            "32",
            "--out",
            self._out(),
            *extra_options,
        ]

    def _dataset(self) -> list[str]:
        data = self.draw.choice(["{data}", "{data}", "{packed}"])
        heavy = [
            ["report", data, "--out", "OUT"],
            ["push", "--data", data, "--repo", "me/data"],
            ["plan", "--data", data, "--model", self.draw.choice(["t5-small", "{bert}"])],
        ]
        return self.draw.choice(
            [
                ["verify", data],
                ["inspect", data, "-n", self.draw.choice(["1", "50"])],
                ["diff", data, self.draw.choice(["{data}", "{packed}"])],
                ["upload", data, "gs://bucket/there"],
                *(heavy if self.training else []),
            ]
        )

    def _tokenizer(self) -> list[str]:
        if self.draw.random() < 0.2:
            line = ["tokenizer", "train", "--source", "{lines.txt}", "--vocab-size", "200", "--out", self._out()]
            return [*line, "--workers", "1"]
        name = self.draw.choice(self.tokenizers)
        return ["tokenizer", "check", f"{{{name}}}", "--source", self._source(), "--column", "Title"]

    def _other_line(self) -> list[str]:
        return self.draw.choice(
            [
                ["tasks"],
                [
                    "filter",
                    "gopher:least_words=3",
                    "{filter.py}:no_menus",
                    "--try",
                    self._source(),
                    "--column",
                    "Title",
                ],
                *([["doctor"]] if self.training else []),
                ["cache", "show"],
                ["completion", self.draw.choice(["bash", "zsh", "fish"])],
            ]
        )

    def _train(self) -> list[str]:
        settings = ["weights=random", "batch=8", "steps=4", "eval_every=2", "log_every=1", "tensorboard=false"]
        settings += ["dropout=0", "learning_rate=0.01"]
        model = self.draw.choice(["{shape}", "{shape}", *(f"{{{name}}}" for name in MODELS)])
        if model != "{shape}":
            settings[0] = "weights=pretrained"
        out = self.draw.choice(["{run}", "OUT", self._out()])
        setting_options = [word for setting in settings for word in ("--set", setting)]
        return ["train", "--data", "{data}", "--model", model, "--out", out, *setting_options]

    def _model(self) -> list[str]:
        model = f"{{{self.draw.choice(MODELS)}}}"
        return self.draw.choice(
            [
                ["eval", "--model", model, "--data", "{data}"],
                ["eval", "--model", "{run}"],
                ["predict", self._source(), "--model", "{run}", "--out", self._out()],
                ["predict", "{lines.txt}", "--as-text", "--model", model, "--max-length", "4"],
                ["export", "--model", "{run}", "--out", self._out()],
                ["push", "--model", model, "--repo", "me/model"],
                ["report", "{run}", "--out", "OUT"],
                ["plan", "--model", model, "--data", "{data}"],
            ]
        )


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command that does something, by the words that call it."""
    context = click.Context(command)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            if (subcommand := command.get_command(context, name)) is not None:
                yield from commands(subcommand, (*path, name))
    else:
        yield path, command


def case(kit: Path, lines: Lines, parent_folder: Path) -> str:
    """Copy what one drawn line reads into a new folder, damage some of it, run the line, and return what went wrong."""
    words = lines.line()
    names = list(dict.fromkeys(re.findall(r"{([\w.]+)}", " ".join(words))))
    with tempfile.TemporaryDirectory(dir=parent_folder) as folder:
        work_folder = Path(folder)
        for name in names:
            copy = shutil.copytree if (kit / name).is_dir() else shutil.copy
            copy(kit / name, work_folder / name)
        if "others" not in names:
            shutil.copytree(kit / "others", work_folder / "others")
        damages = [
            damage(work_folder / name, lines.draw)
            for name in lines.draw.sample([name for name in names if name != "others"] or names, k=min(1, len(names)))
            if name != "others" and lines.draw.random() < 0.95
        ]
        typed = [re.sub(r"{([\w.]+)}", lambda match: str(work_folder / match[1]), word) for word in words]
        typed = [str(work_folder / "out") if word == "OUT" else word for word in typed]
        theirs = content(work_folder)
        wrong = fault(typed)
        final_digests = content(work_folder)
        output_path = str(Path(typed[typed.index("--out") + 1]).relative_to(work_folder)) if "--out" in typed else "out"
        changed = [path for path, digest in theirs.items() if final_digests.get(path) != digest]
        if changed := [
            path for path in changed if output_path == path == "others/notes.txt" or not path.startswith(output_path)
        ]:
            wrong = wrong or f"changed: {changed}"
        return f"t5prep {' '.join(map(ascii, typed))}\n{damages}\n{wrong}" if wrong else ""


ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "cp1252", "shift_jis", "iso2022_jp", "gb18030")
# Wrong bytes before this are another encoding, and refuse a file; those after it only cost their row.
SNIFFED_BYTES = 16
ENDS = ("\n", "\r", "\r\n", "\r\r\n", "\n\r", "\n\n", "\r\n\r\n")
_CHARACTERS = {"cp1252": "é", "shift_jis": "中ソ", "iso2022_jp": "中ソ", "gb18030": "中é"}
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


class Nasty(NamedTuple):
    """Hold one file: its name, its bytes, the encoding to say, and its rows: records, "rejected" or "blank"."""

    name: str
    data: bytes
    encoding: str
    rows: list[dict | str]


def generate(seed: int, *, kind: str = "", encoding: str = "") -> Nasty:
    """Return the file of a seed; each has the columns `id` and `text`, or `text` alone where it is plain lines."""
    draw = random.Random(seed)
    kind = kind or draw.choice(("csv", "csv", "csv", "tsv", "jsonl", "text", "parquet"))
    encoding = encoding or draw.choice(ENCODINGS)
    if kind == "parquet":
        return _parquet(draw, seed, encoding)
    characters = _CHARACTERS.get(encoding, "é🙂\u2028")
    header = {"csv": draw.choice(("id,text", '"id","text"', 'id,"text"')), "tsv": "id\ttext"}.get(kind, "")
    end = draw.choice(ENDS) if draw.random() < 0.6 else ""
    lines = [_row(draw, kind, characters) for _ in range(draw.randrange(40))]
    body = "".join(line + (end or draw.choice(ENDS)) for line in lines)
    if draw.random() < 0.3:
        body = body.rstrip("\r\n")
    start = header and header + (
        end.replace("\n\n", "\n").replace("\r\n\r\n", "\r\n") or draw.choice(("\n", "\r", "\r\n"))
    )
    data = bytearray((start + body).encode(encoding, "replace"))
    if draw.random() < 0.2 and len(data) > SNIFFED_BYTES and encoding in ("utf-8", "utf-8-sig", "cp1252"):
        offset = draw.randrange(SNIFFED_BYTES, len(data))
        data[offset:offset] = draw.choice((b"\x81", b"\xff", b"\xe4\xb8")) if encoding != "cp1252" else b"\x81"
    declared_encoding = {"utf-8-sig": "utf-8"}.get(encoding, encoding)
    return Nasty(
        f"{seed:06d}.{'txt' if kind == 'text' else kind}",
        bytes(data),
        declared_encoding,
        reference(bytes(data), kind, declared_encoding),
    )


def _row(draw: random.Random, kind: str, characters: str) -> str:
    plain = [*"ab 1x", *characters, "word ", "\0" if draw.random() < 0.02 else "."]
    text = "".join(draw.choices(plain, k=draw.randrange(1, 30)))
    if draw.random() < 0.08:
        return draw.choice(("", " ", "\t"))
    if kind == "text":
        return text
    if kind == "tsv":
        return draw.choice((f"{draw.randrange(99)}\t{text}",) * 9 + (text, f"1\t2\t{text}", f'"\t{text}'))
    if kind == "jsonl":
        value = draw.choice((text,) * 9 + (True, float("nan"), {"a": [text]}, [1], None, [text]))
        line = json.dumps({"id": draw.randrange(99), "text": value}, ensure_ascii=draw.random() < 0.5)
        return draw.choice((line,) * 9 + (line[:-1], "[1]", "{}", '{"id": 1, "id": 2, "text": "x"}'))
    odd = (
        *(f'"{text}"', f'1,"{text}', f'1,{text}"', f'"1"x,{text}', f'1,"{text}" ', f"1,{text},3", '"', '""', ","),
        *(f'1,"{text}\n', f'1,"a\rb{text}"', '1,"a\r\n"'),
    )
    inner = text.replace(" ", draw.choice((" ", "\n", "\r", "\r\n", '""', ",")))
    return draw.choice((f'{draw.randrange(99)},"{inner}"',) * 9 + (f"{draw.randrange(99)},{text}",) * 9 + odd)


def _parquet(draw: random.Random, seed: int, encoding: str) -> Nasty:
    values = draw.choices([b"text", "é".encode(), b"", b"a\0b", b"\xff", None, b"x\ry"], k=draw.randrange(1, 60))
    array = pa.array(values, draw.choice((pa.binary(), pa.large_binary())))
    if draw.random() < 0.5:
        array = pa.Array.from_buffers(pa.string(), len(array), array.cast(pa.binary()).buffers())
    table = pa.table({"id": [str(i) for i in range(len(values))], "text": array})
    file = io.BytesIO()
    pq.write_table(table, file, row_group_size=draw.randrange(1, 40))
    rows = []
    for i, value in enumerate(values):
        try:
            text = None if value is None else value.decode()
            rows.append("rejected" if text and "\0" in text else {"id": str(i), "text": text})
        except UnicodeDecodeError:
            rows.append("rejected")
    return Nasty(f"{seed:06d}.parquet", file.getvalue(), {"utf-8-sig": "utf-8"}.get(encoding, encoding), rows)


def reference(data: bytes, kind: str, encoding: str) -> list[dict | str]:
    """Return every row of a whole file after its header: its record, "rejected" or "blank"."""
    for mark, name in ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le")):
        if data.startswith(mark):
            data, encoding = data[len(mark) :], name
    text = data.decode(encoding, "surrogateescape" if encoding in ("utf-8", "cp1252") else "strict")
    lines = _LINE.findall(text)
    assert "".join(lines) == text
    if kind != "csv":
        parse = {"tsv": _tab, "jsonl": _json, "text": lambda line: {"text": line} if line.strip() else "blank"}[kind]
        rows = [parse(line.removesuffix("\n").removesuffix("\r")) for line in lines[kind == "tsv" :]]
    else:
        rows = list(_csv(lines))[1:]
    return [_sound(row) for row in rows]


def _csv(lines: list[str]) -> list[dict | str]:
    rows: list[dict | str] = []
    line_index = 0
    while line_index < len(lines):
        reader = csv.reader(iter(lines[line_index:]), strict=True)
        try:
            fields = next(reader)
            line_index += reader.line_num
        except csv.Error:
            rows.append("rejected")
            line_index += 1
            continue
        rows.append(
            dict(zip(("id", "text"), fields, strict=True)) if len(fields) == 2 else "rejected" if fields else "blank"
        )
    return rows


def _tab(line: str) -> dict | str:
    fields = line.split("\t")
    return "blank" if not line else dict(zip(("id", "text"), fields, strict=True)) if len(fields) == 2 else "rejected"


def _json(line: str) -> dict | str:
    if not line.strip():
        return "blank"
    try:
        row = json.loads(line)
    except ValueError:
        return "rejected"
    text = row.get("text") if isinstance(row, dict) else None
    good = isinstance(row, dict) and row and line.count('"id"') == 1
    good = good and (text is None or isinstance(text, str | bool | list))
    return row if good else "rejected"


def _sound(row: dict | str) -> dict | str:
    if isinstance(row, str):
        return row
    try:
        encoded_text = "".join(
            [*row, *("".join(map(str, value)) if isinstance(value, list) else str(value) for value in row.values())]
        ).encode()
    except UnicodeEncodeError:
        return "rejected"
    return "rejected" if b"\0" in encoded_text else row


def write(nasty: Nasty, folder: Path) -> Path:
    """Write a file into a folder, and return its path."""
    path = folder / nasty.name
    path.write_bytes(nasty.data)
    return path
