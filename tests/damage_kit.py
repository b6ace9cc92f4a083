"""Good files of every stage, to be copied and damaged: sources, tokenizers, datasets, runs, and models of each format."""

import gzip
import json
import shutil
from pathlib import Path

import encoders
import numpy as np
import pyarrow as pa
import pyarrow.parquet
from preparing import prepared, questions, write_csv

from t5prep.sources import sample

SOURCES = ("rows.csv", "rows.tsv", "rows.jsonl", "rows.json", "rows.jsonl.gz", "rows.jsonl.zst", "rows.parquet")


def make(folder: Path, *, training: bool) -> None:
    """Write the parts of the kit, a folder or a file each; those of training are also wanted with `training`."""
    folder.mkdir()
    _sources(folder)
    shutil.copy(sample.tokenizer_path(), folder / "spiece.model")
    encoders.bert(folder / "bert")
    encoders.roberta(folder / "roberta")
    how = {"tokenizer": "sample:", "input_length": 32}
    prepared(folder / "rows.csv", folder / "data", shards=2, **how)
    prepared(folder / "rows.csv", folder / "packed", layout="packed", target_length=8, **how)
    (folder / "filter.py").write_text('def no_menus(text):\n    return "menu" if "menu" in text else ""\n')
    others = folder / "others"
    (others / "theirs").mkdir(parents=True)
    (others / "notes.txt").write_text("nobody may change this\n")
    (others / "theirs" / "letter.txt").write_text("nor this\n")
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
    import training

    import t5prep
    from t5prep.train.model.weight_layout import weight_layouts
    from t5prep.train.model.weights import load_weights
    from t5prep.train.publish.export import export_hf

    shape = training.shape(folder / "shape")
    config = training.config(str(folder / "data"), shape, folder / "run", steps=4, eval_every=2)
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
        ("hdf5", model_formats.write_hdf5, "tf_model.h5"),
    ):
        shutil.copytree(folder / "safetensors", folder / name)
        (folder / name / "model.safetensors").unlink()
        write(folder / name / file, tensors)
