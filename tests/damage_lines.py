"""Command lines over all commands, on copies of the kit's parts of which some are damaged: what is typed, and one case of it."""

import random
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import damaging
from damage_kit import SOURCES

from t5prep.cli import main

TOKENIZERS = ["spiece.model", "bert", "roberta"]
MODELS = ("run", "run", "safetensors", "pytorch", "flax", "hdf5")
# Options that need other machines, wait for ever, or compile a program for each value.
NEVER = {
    "runner",
    "tpu",
    "gpus",
    "profile",
    "follow",
    "help",
    "overwrite",
    "bucket",
    "zone",
    "service_account",
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
            *(self._tokenizer, self._other),
            *((self._train, self._model, self._model, self._model) if self.training else ()),
        ]
        words = self.draw.choice(kinds)()
        path = tuple(words[:2]) if tuple(words[:2]) in self.commands else tuple(words[:1])
        for _ in range(self.draw.choice([0, 0, 1, 2])):
            words += self._option(path, words)
        return words

    def _option(self, path: tuple[str, ...], given: list[str]) -> list[str]:
        """Return one more option with a value of its type."""
        options = [one for one in self.commands[path].params if isinstance(one, click.Option)]
        fitting = [one for one in options if one.name not in NEVER | COMPILED and not set(one.opts) & set(given)]
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
        more = self.draw.choice([[], [], ["--dedup", "exact"], ["--dedup", "near"], ["--layout", "packed"]])
        return ["prepare", *task, "--tokenizer", tokenizer, "--input-length", "32", "--out", self._out(), *more]

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

    def _other(self) -> list[str]:
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
        said = [word for one in settings for word in ("--set", one)]
        return ["train", "--data", "{data}", "--model", model, "--out", out, *said]

    def _model(self) -> list[str]:
        model = f"{{{self.draw.choice(MODELS)}}}"
        return self.draw.choice(
            [
                ["eval", "--model", model, "--data", "{data}"],
                ["eval", "--model", "{run}"],
                ["predict", self._source(), "--model", "{run}", "--out", self._out()],
                ["predict", "{lines.txt}", "--as-text", "--model", model, "--max-length", "4"],
                ["serve", "--model", model, "--port", "0", "--max-length", "4"],
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
            if (found := command.get_command(context, name)) is not None:
                yield from commands(found, (*path, name))
    else:
        yield path, command


def case(kit: Path, lines: Lines, place: Path) -> str:
    """Copy what one drawn line reads into a new folder, damage some of it, run the line, and return what went wrong."""
    words = lines.line()
    names = list(dict.fromkeys(re.findall(r"{([\w.]+)}", " ".join(words))))
    with tempfile.TemporaryDirectory(dir=place) as folder:
        here = Path(folder)
        for name in names:
            copy = shutil.copytree if (kit / name).is_dir() else shutil.copy
            copy(kit / name, here / name)
        if "others" not in names:
            shutil.copytree(kit / "others", here / "others")
        damages = [
            damaging.damage(here / name, lines.draw)
            for name in lines.draw.sample([name for name in names if name != "others"] or names, k=min(1, len(names)))
            if name != "others" and lines.draw.random() < 0.95
        ]
        typed = [re.sub(r"{([\w.]+)}", lambda match: str(here / match[1]), word) for word in words]
        typed = [str(here / "out") if word == "OUT" else word for word in typed]
        theirs = damaging.content(here)
        wrong = damaging.fault(typed)
        after = damaging.content(here)
        own = str(Path(typed[typed.index("--out") + 1]).relative_to(here)) if "--out" in typed else "out"
        changed = [path for path, digest in theirs.items() if after.get(path) != digest]
        if changed := [path for path in changed if own == path == "others/notes.txt" or not path.startswith(own)]:
            wrong = wrong or f"changed: {changed}"
        return f"t5prep {' '.join(map(ascii, typed))}\n{damages}\n{wrong}" if wrong else ""
