"""`plan` and `train` make their step by one function: for one layout, the same program by its digest."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
import toy_runs

import t5prep
from t5prep.options.models import PlanOptions
from t5prep.planning import compiled, compiler, interface, report
from t5prep.planning.compiled import Compiled
from t5prep.planning.questions import ask
from t5prep.training import trainer
from t5prep.training.model.architecture import ModelConfig
from t5prep.training.model.weight_layout import weight_layouts
from t5prep.training.runtime import compiling
from t5prep.training.runtime.devices import open_layout

pytestmark = pytest.mark.extra("libtpu")


@pytest.mark.parametrize(("replicas", "shard"), [(1, 1), (2, 2)])
def test_what_is_planned_is_what_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replicas: int, shard: int
) -> None:
    data, shape = toy_runs.classes(tmp_path / "classes"), toy_runs.shape(tmp_path / "shape")
    config = toy_runs.config(data, shape, tmp_path / "run", shard=str(shard), dtype="float32", dropout=0.1)
    trained, planned = [], []

    class EnoughError(Exception):
        pass

    def uncompiled(program: object, **_: object) -> None:
        trained.append(program.digest)  # type: ignore[attr-defined]
        raise EnoughError

    monkeypatch.setattr(compiling, "compile_program", uncompiled)
    with pytest.raises(EnoughError):
        trainer.train(config, replicas=replicas)

    def described(request: dict, **_: object) -> Compiled:
        program, _state = compiler.step_of(request["step"], open_layout(replicas=replicas, shard=shard).devices)
        planned.append(program.digest)
        return Compiled(fits=True, hbm_bytes=1)

    monkeypatch.setattr(compiled, "compile_for", described)
    monkeypatch.setenv("T5PREP_CACHE", str(tmp_path / "cache"))
    options = PlanOptions(model=shape, batch=(config.batch,), data=data, settings=dataclasses.asdict(config))
    (question,), _ = interface.resolve_questions(options, tpus=[f"v5e-{replicas * shard}"])
    assert isinstance(question.shape, ModelConfig)
    ask(question)
    assert planned == trained


def test_what_is_planned_for_vectors_is_what_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`plan --embed` asks for the encoder alone, with its matrices in bfloat16, and counts a third of a training's work."""
    shape = toy_runs.shape(tmp_path / "shape")
    planned = []

    def described(request: dict, **_: object) -> Compiled:
        program, state = compiler.step_of(request["step"], open_layout().devices)
        planned.append((program.name, sorted(program.arguments[0]), program.arguments[1]["input_ids"].shape))
        return Compiled(fits=True, hbm_bytes=1, loops=True, **state)

    monkeypatch.setattr(compiled, "compile_for", described)
    monkeypatch.setenv("T5PREP_CACHE", str(tmp_path / "cache"))
    request: dict[str, Any] = {"model": shape, "tpu": "v5e-1", "batch": 4, "input_length": 16}
    plan = t5prep.plan(**request, embed=True)
    ((name, weights, rows),) = planned
    assert (name, rows) == ("embed", (4, 16))
    assert weights
    assert not [weight_name for weight_name in weights if weight_name.startswith(("decoder.", "lm_head"))]
    assert plan.answer.compiled.slot_bytes == 0
    layouts = weight_layouts(plan.answer.question.shape)
    assert plan.answer.compiled.weight_bytes < 4 * sum(math.prod(layouts[weight_name].shape) for weight_name in weights)
    training_too = dataclasses.replace(plan.answer, question=dataclasses.replace(plan.answer.question, embed=False))
    assert 0 < 3 * plan.answer.model_flops < training_too.model_flops
    (line, *_) = report.lines(plan.answer, model="tiny")
    assert "16 tokens; vectors alone, bfloat16" in line
