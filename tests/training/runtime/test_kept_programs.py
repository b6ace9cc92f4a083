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


def results(compiled, lowered_program: Program) -> dict[str, np.ndarray]:
    weights = put_weights(random_weights(probe.TOY), lowered_program.layout.weights(probe.TOY))
    return {
        name: np.asarray(array)
        for name, array in compiled(weights, put_whole_rows(ROWS, lowered_program.layout)).items()
    }


def test_a_program_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lowered_program, messages = program(), []
    first = results(compiling.compile_program(lowered_program, cache_path=str(tmp_path)), lowered_program)
    assert np.array_equal(first["ids"], ROWS["input_ids"] * 2)
    monkeypatch.setattr(compiling, "compile_now", lambda _, **__: pytest.fail("it was kept"))
    cached_outputs = results(
        compiling.compile_program(program(), cache_path=str(tmp_path), say=messages.append), lowered_program
    )
    assert all(np.array_equal(first[name], cached_outputs[name]) for name in first)
    assert not messages


def test_of_150_damaged_files_none_is_loaded_and_each_is_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lowered_program, messages, loaded = program(1), [], []
    compiled = compiling.compile_program(lowered_program, cache_path=str(tmp_path))
    (file,) = tmp_path.iterdir()
    content, rng = file.read_bytes(), np.random.default_rng(0)
    monkeypatch.setattr(compiling, "compile_now", lambda _, **__: compiled)
    monkeypatch.setattr(compiling.serialize_executable, "deserialize_and_load", lambda *_, **__: loaded.append(1))
    for number in range(150):
        damaged, offset = bytearray(content), int(rng.integers(len(content)))
        match number % 5:
            case 0:
                damaged[offset] ^= 1 << int(rng.integers(8))
            case 1:
                del damaged[offset:]
            case 2:
                damaged[offset : offset + 512] = bytes(len(damaged[offset : offset + 512]) or 1)
            case 3:
                damaged[offset:offset] = b"\0"
            case 4:
                damaged[:] = rng.bytes(offset)
        if bytes(damaged) == content:  # zeros were written over zeros
            damaged += b"\0"
        file.write_bytes(damaged)
        assert compiling.compile_program(lowered_program, cache_path=str(tmp_path), say=messages.append) is compiled
    assert not loaded
    assert len(messages) == 150
    assert all(str(file) in message for message in messages)
    monkeypatch.undo()
    assert np.array_equal(
        results(compiling.compile_program(lowered_program, cache_path=str(tmp_path)), lowered_program)["ids"],
        ROWS["input_ids"] * 2,
    )


class Strangers:
    """When it is unpickled, code of a stranger runs."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple:
        return Path.touch, (self.trace,)


def test_what_a_stranger_wrote_is_never_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lowered_program, cache_path, messages = program(1), tmp_path / "programs", []
    path, trace = (
        Path(compiling.save(compiling.compile_now(lowered_program), lowered_program, str(cache_path))),
        tmp_path / "executed",
    )
    attack = pickle.dumps(Strangers(trace))
    pickle.loads(attack)
    assert trace.exists()
    trace.unlink()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "stranger"))
    signed = signed_files.sign(b"{}\n" + attack, name=path.name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "own"))
    for content in (attack, b"{}\n" + attack, signed):
        path.write_bytes(content)
        outputs = results(
            compiling.compile_program(lowered_program, cache_path=str(cache_path), say=messages.append), lowered_program
        )
        assert np.array_equal(outputs["ids"], ROWS["input_ids"] * 2)
    assert not trace.exists()
    assert len(messages) == 3


def test_what_other_versions_made_is_named_and_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lowered_program, messages = program(1), []
    compiling.compile_program(lowered_program, cache_path=str(tmp_path))
    current_environment = compiling.environment(lowered_program)
    monkeypatch.setattr(compiling, "environment", lambda _: current_environment | {"jax": "99.0"})
    compiling.compile_program(lowered_program, cache_path=str(tmp_path), say=messages.append)
    assert len(messages) == 1
    assert f"jax {current_environment['jax']}" in messages[0]
    assert "99.0" in messages[0]
    assert len(list(tmp_path.glob("*.executable"))) == 2


def test_a_program_that_another_process_has_just_deleted_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lowered_program = program(1)
    monkeypatch.setattr(compiling.store.Store, "names", lambda _: {compiling._name(lowered_program)})
    outputs = results(compiling.compile_program(lowered_program, cache_path=str(tmp_path)), lowered_program)
    assert np.array_equal(outputs["ids"], ROWS["input_ids"] * 2)


def test_a_cpu_multiplies_matrices_without_the_slow_fusions() -> None:
    """With jaxlib 0.10.2's own choice, the text of the compiled program names them, and a step takes twice the time."""

    def products(weights, batch):
        rows = tf.gather(weights["shared"], batch["input_ids"])
        return {"sums": tf.reduce_sum(tf.exp(tf.matmul(rows, weights["shared"], transpose_b=True)), axis=-1)}

    specs = {"input_ids": tf.TensorSpec([4, 2], tf.int32)}
    lowered_program = rows_program("products", products, shape=probe.TOY, layout=open_layout(), batch=specs)
    assert "ynn" not in compiling.compile_now(lowered_program).as_text()
    assert "ynn" in lowered_program.lowered.compile().as_text()  # otherwise the option has become superfluous
    assert compiling.environment(lowered_program)["options"].items() >= compiling.OPTIONS["cpu"].items()
