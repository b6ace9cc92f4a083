"""What needs sentinels is refused for a vocabulary that has none or too few, before anything is prepared."""

import json

from click.testing import CliRunner
from raised import assert_error
from small_corpora import write_csv

from t5prep.cli import main
from t5prep.tokens import huggingface_files, loading
from tests import encoders


def prepare(task, source, tokenizer, out, *options):
    line = ["prepare", task, "--source", source, "--tokenizer", tokenizer, "--out", out, *options]
    return CliRunner().invoke(main, [*map(str, line)])


def test_a_task_names_what_it_needs_of_a_vocabulary(tmp_path):
    gemma = encoders.gemma(tmp_path / "gemma", encoders.SENTENCES)
    rows = [{"inputs": text, "targets": "a film"} for text in encoders.SENTENCES[:9]]
    table, lines = write_csv(tmp_path / "rows.csv", rows), tmp_path / "lines.txt"
    lines.write_text("\n".join(encoders.SENTENCES))
    result = prepare("ul2", lines, gemma, tmp_path / "ul2")
    assert result.exit_code == 1
    assert_error(result.stderr, "tokenizer.missing-sentinels", "ul2", " 100 ", " 99 ")

    tokenizer_json = huggingface_files.tokenizer_json(loading.load(str(gemma)))
    tokenizer_json["added_tokens"] = [
        token for token in tokenizer_json["added_tokens"] if not token["content"].startswith("<unused")
    ]
    vocabulary = tokenizer_json["model"]["vocab"]
    tokenizer_json["model"]["vocab"] = {text.replace("<unused", "<other"): id for text, id in vocabulary.items()}
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "tokenizer.json").write_text(json.dumps(tokenizer_json))
    columns = ("--inputs-column", "inputs", "--targets-column", "targets")
    for options, sentinel, instead in (
        ((), "<extra_id_1>", "--marker none"),
        (("--marker", "none", "--keep-newlines"), "<extra_id_2>", "--keep-newlines"),
    ):
        result = prepare("text2text", table, tmp_path / "none", tmp_path / "out", *columns, *options)
        assert result.exit_code == 1
        assert_error(result.stderr, "tokenizer.missing-sentinels", sentinel, instead)
    result = prepare("text2text", table, tmp_path / "none", tmp_path / "out", "--marker", "none", *columns)
    assert result.exit_code == 0, result.output
