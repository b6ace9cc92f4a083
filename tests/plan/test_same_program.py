"""`plan` and `train` make their step by one function: for one layout, the same program by its digest."""

import dataclasses
from pathlib import Path

import pytest
import training

pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
pytest.importorskip("libtpu", reason="needs the extra plan")
pytest.importorskip("jax", reason="jax is not installed")

from t5prep.plan import compiled, compiler, planner
from t5prep.plan.compiled import Compiled
from t5prep.plan.question import ask
from t5prep.train import trainer
from t5prep.train.model.architecture import ModelConfig
from t5prep.train.runtime import compiling
from t5prep.train.runtime.devices import open_layout


@pytest.mark.parametrize(("replicas", "shard"), [(1, 1), (2, 2)])
def test_what_is_planned_is_what_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replicas: int, shard: int
) -> None:
    data, shape = training.classes(tmp_path / "classes"), training.shape(tmp_path / "shape")
    config = training.config(data, shape, tmp_path / "run", shard=str(shard), dtype="float32", dropout=0.1)
    trained, planned = [], []

    class EnoughError(Exception):
        pass

    def uncompiled(program: object, **_: object) -> None:
        trained.append(program.digest)  # type: ignore[attr-defined]
        raise EnoughError

    monkeypatch.setattr(compiling, "compile_program", uncompiled)
    with pytest.raises(EnoughError):
        trainer.train(config, replicas=replicas)

    def described(step: dict, **_: object) -> Compiled:
        program, _state = compiler.step_of(step, open_layout(replicas=replicas, shard=shard).devices)
        planned.append(program.digest)
        return Compiled(fits=True, hbm_bytes=1)

    monkeypatch.setattr(compiled, "compile_step", described)
    monkeypatch.setenv("T5PREP_CACHE", str(tmp_path / "cache"))
    (question,) = planner.questions(
        model=shape,
        tpus=[f"v5e-{replicas * shard}"],
        batches=[config.batch],
        data=planner.read(data, split="train"),
        settings=[dataclasses.asdict(config)],
    )
    assert isinstance(question.shape, ModelConfig)
    ask(question)
    assert planned == trained
