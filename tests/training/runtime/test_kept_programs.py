"""Compiled programs are kept: taken again, refused when damaged or a stranger's, and said when other versions made them."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from t5prep.io import signed_files
from t5prep.training.model.weights import random_weights
from t5prep.training.runtime import compiling, probe
from t5prep.training.runtime.devices import open_layout
from t5prep.training.runtime.programs import Program, rows_program
from t5prep.training.runtime.state import put_weights, put_whole_rows

ROWS = {"input_ids": np.arange(8, dtype=np.int32).reshape(4, 2)}


def program(replicas: int = 2) -> Program:
    def doubled(weights, batch):
        return {"ids": batch["input_ids"] * 2, "first": tf.gather(weights["shared"][:, 0], batch["input_ids"][:, 0])}

    specs = {"input_ids": tf.TensorSpec([4, 2], tf.int32)}
    return rows_program("doubled", doubled, shape=probe.TOY, layout=open_layout(replicas=replicas), batch=specs)


def results(compiled, made: Program) -> dict[str, np.ndarray]:
    weights = put_weights(random_weights(probe.TOY), made.layout.weights(probe.TOY))
    return {name: np.asarray(one) for name, one in compiled(weights, put_whole_rows(ROWS, made.layout)).items()}


def test_a_program_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, said = program(), []
    first = results(compiling.compile_program(made, cache_path=str(tmp_path)), made)
    assert np.array_equal(first["ids"], ROWS["input_ids"] * 2)
    monkeypatch.setattr(compiling, "compile_now", lambda _, **__: pytest.fail("it was kept"))
    again = results(compiling.compile_program(program(), cache_path=str(tmp_path), say=said.append), made)
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not said


def test_of_150_damaged_files_none_is_loaded_and_each_is_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, said, loaded = program(1), [], []
    compiled = compiling.compile_program(made, cache_path=str(tmp_path))
    (file,) = tmp_path.iterdir()
    whole, rng = file.read_bytes(), np.random.default_rng(0)
    monkeypatch.setattr(compiling, "compile_now", lambda _, **__: compiled)
    monkeypatch.setattr(compiling.serialize_executable, "deserialize_and_load", lambda *_, **__: loaded.append(1))
    for number in range(150):
        damaged, place = bytearray(whole), int(rng.integers(len(whole)))
        match number % 5:
            case 0:
                damaged[place] ^= 1 << int(rng.integers(8))
            case 1:
                del damaged[place:]
            case 2:
                damaged[place : place + 512] = bytes(len(damaged[place : place + 512]) or 1)
            case 3:
                damaged[place:place] = b"\0"
            case 4:
                damaged[:] = rng.bytes(place)
        if bytes(damaged) == whole:  # zeros were written over zeros
            damaged += b"\0"
        file.write_bytes(damaged)
        assert compiling.compile_program(made, cache_path=str(tmp_path), say=said.append) is compiled
    assert not loaded
    assert len(said) == 150
    assert all("is damaged or was not signed with this user's key" in one for one in said)
    monkeypatch.undo()
    assert np.array_equal(
        results(compiling.compile_program(made, cache_path=str(tmp_path)), made)["ids"], ROWS["input_ids"] * 2
    )


class Strangers:
    """When it is unpickled, code of a stranger runs."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple:
        return Path.touch, (self.trace,)


def test_what_a_stranger_wrote_is_never_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, place, said = program(1), tmp_path / "programs", []
    path, trace = Path(compiling.save(compiling.compile_now(made), made, str(place))), tmp_path / "executed"
    attack = pickle.dumps(Strangers(trace))
    pickle.loads(attack)
    assert trace.exists()
    trace.unlink()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "stranger"))
    signed = signed_files.sign(b"{}\n" + attack, name=path.name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "own"))
    for content in (attack, b"{}\n" + attack, signed):
        path.write_bytes(content)
        found = results(compiling.compile_program(made, cache_path=str(place), say=said.append), made)
        assert np.array_equal(found["ids"], ROWS["input_ids"] * 2)
    assert not trace.exists()
    assert len(said) == 3


def test_what_other_versions_made_is_named_and_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, said = program(1), []
    compiling.compile_program(made, cache_path=str(tmp_path))
    here = compiling.environment(made)
    monkeypatch.setattr(compiling, "environment", lambda _: here | {"jax": "99.0"})
    compiling.compile_program(made, cache_path=str(tmp_path), say=said.append)
    assert len(said) == 1
    assert f"jax {here['jax']}" in said[0]
    assert "99.0" in said[0]
    assert len(list(tmp_path.glob("*.executable"))) == 2


def test_a_program_that_another_process_has_just_deleted_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = program(1)
    monkeypatch.setattr(compiling.store.Store, "names", lambda _: {compiling._name(made)})
    found = results(compiling.compile_program(made, cache_path=str(tmp_path)), made)
    assert np.array_equal(found["ids"], ROWS["input_ids"] * 2)


def test_a_cpu_multiplies_matrices_without_the_slow_fusions() -> None:
    """With jaxlib 0.10.2's own choice, the text of the compiled program names them, and a step takes twice the time."""

    def products(weights, batch):
        rows = tf.gather(weights["shared"], batch["input_ids"])
        return {"sums": tf.reduce_sum(tf.exp(tf.matmul(rows, weights["shared"], transpose_b=True)), axis=-1)}

    specs = {"input_ids": tf.TensorSpec([4, 2], tf.int32)}
    made = rows_program("products", products, shape=probe.TOY, layout=open_layout(), batch=specs)
    assert "ynn" not in compiling.compile_now(made).as_text()
    assert "ynn" in made.lowered.compile().as_text()  # otherwise the option has become superfluous
    assert compiling.environment(made)["options"].items() >= compiling.OPTIONS["cpu"].items()
