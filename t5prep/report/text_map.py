"""Show the texts of a dataset as a map in Embedding Atlas, by the vectors that `t5prep embed` made of them."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from t5prep import __version__
from t5prep.dataset import manifest, table
from t5prep.errors import UsageError
from t5prep.io import cache_folder, paths
from t5prep.train import need_tensorflow

PROGRAM = "embedding-atlas"


def command(
    data: str | Path,
    vectors: str | Path,
    *,
    port: int,
    predictions: str | Path | None = None,
    tokenizer: str | None = None,
) -> list[str]:
    """Return the command that serves the map on this machine, after writing the table with vectors that it reads.

    The seed of the map is fixed, so the same vectors give the same map. Raises UsageError if Embedding Atlas is missing, or
    `vectors` has no vector of a record; and what `t5prep.table` raises.
    """
    program = shutil.which(PROGRAM)
    if program is None:
        raise UsageError(
            f"--map is drawn by Embedding Atlas, and there is no {PROGRAM} on the path. Get it, in an environment of its own: "
            "python -m venv ~/atlas && ~/atlas/bin/pip install embedding-atlas && export PATH=$PATH:~/atlas/bin"
        )
    ids, values = _read(Path(vectors))
    rows = table.records(data, tokenizer=tokenizer, predictions=predictions).read_all()
    if not pa.types.is_string(rows.schema.field("id").type):
        raise UsageError(f"A packed record has many examples, so no vector is of one: {data} has no map.")
    places = pc.index_in(rows["id"], ids)
    rows = rows.filter(places.is_valid())
    if not len(rows):
        raise UsageError(
            f"{vectors} has no vector of a record of {data}: its ids are others. Embed its texts: t5prep table {data} "
            "texts.parquet, then t5prep embed MODEL texts.parquet --column input --pooling mean --out VECTORS"
        )
    own = values[places.drop_null().to_numpy()]
    rows = rows.append_column("vector", pa.FixedSizeListArray.from_arrays(pa.array(own.reshape(-1)), own.shape[1]))
    path = cache_folder.root() / "tables" / f"{manifest.load(data).digest[:32]}-{__version__}-map.parquet"
    table.write(rows.to_reader(), path)
    where = ["--host", "127.0.0.1", *(["--port", str(port)] if port else [])]
    return [program, str(path), "--vector", "vector", "--text", "input", "--umap-random-state", "0", *where]


def _read(folder: Path) -> tuple[pa.Array, np.ndarray]:
    """Return the ids of texts and their vectors, float32[texts, width]. Raises UsageError if it is no such folder."""
    need_tensorflow()
    from t5prep.train.embed.shards import MANIFEST
    from t5prep.train.published import safetensors_file
    from t5prep.train.published.stored import UnreadableError

    ids, parts = list[str](), []
    try:
        made = json.loads(paths.read(str(folder / MANIFEST)))
        if made["pooling"] == "none":
            raise UsageError(
                f"{folder} has a vector for each token, and a map needs one for each text: "
                "t5prep embed MODEL TABLE --pooling mean --out VECTORS"
            )
        for shard in made["shards"]:
            path = folder / Path(shard["name"]).name
            own = list(map(str, json.loads(safetensors_file.metadata(path)["ids"])))
            part = safetensors_file.tensors(path)["vectors"].read()
            if part.ndim != 2 or len(part) != len(own) or not part.shape[1] or not np.isfinite(part).all():
                raise ValueError(f"{path.name} has no vector of finite numbers for each of its ids")
            ids += own
            parts.append(part)
        return pa.array(ids, pa.string()), np.concatenate(parts)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, UnreadableError) as error:
        raise UsageError(
            f"{folder} holds no vectors ({error}). Write them: t5prep embed MODEL TABLE --pooling mean --out {folder}"
        ) from error
