"""Odd values to type, and what a person should never see of a command line: shared by the fuzz tests."""

import traceback

from click.testing import CliRunner

from t5prep.cli import main

SEED = 20261121

ODD = [
    *(
        "",
        " ",
        "-",
        "--",
        "0",
        "-1",
        "1",
        "3",
        "7.5",
        "nan",
        "inf",
        "-inf",
        "1e9",
        "99999999999999999999",
        "0x10",
        "١٢",
    ),
    *("true", "none", "auto", "all", "a=b", "=", "a=", "=b", "a=1,b=2", "train=1", "train=0.5,validation=0.6"),
    *(
        "train=0.9,validation=0.1",
        "{x",
        "{}",
        "{0}",
        "{x.y}",
        "%s",
        "\\",
        "'",
        '"',
        "$HOME",
        "~",
        "~nobody/x",
        "*",
        "[",
        "**",
    ),
    *("\udcff\udcfe", "é", "🙂", "\u202e", "a" * 5000, "/" * 300, "../" * 50, "con", "nul"),
    *(
        "utf-8",
        "latin-1",
        "utf-16",
        "hex",
        "rot13",
        "idna",
        "unicode_escape",
        "undefined",
        "csv",
        "jsonl",
        "parquet",
        "gz",
    ),
    *("sample:", "sample:x", "kaggle:", "kaggle:a", "kaggle:a/b@x", "zenodo:", "zenodo:x", "hf:", "hf:a", "hf:a/b#c@d"),
    *("gs://", "gs:///x", "gs:/b/x", "s3://b/x", "http://", "https://", "ftp://x/y", "file:///etc/passwd", ":", "://"),
    *("/dev/null", "/proc/self/mem", "/", ".", "..", "/nonexistent", "/proc/1/mem"),
    *(
        "so_quality",
        "text2text",
        "sst2",
        "text",
        "Title",
        "label",
        "a.b.c",
        "t5-base",
        "tiny",
        "v5e-8",
        "v9-0",
        "head_tail",
    ),
]


def fault(runner: CliRunner, line: list[str]) -> str:
    """Return what went wrong with a command line that no person should see; "" when all is well."""
    result = runner.invoke(main, line, input="a line\n{}\n")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return "".join(traceback.format_exception(result.exception))
    if result.exit_code not in (0, 1, 2):
        return f"exit code {result.exit_code}"
    if "Traceback (most recent call last)" in result.output:
        return "a traceback is printed"
    return "it fails and says nothing" if result.exit_code and not result.output.strip() else ""
