"""Figures of small models are extended to all layers, and all layers are compiled where that is not sure enough."""

import dataclasses

import pytest

from t5prep.options.models import PlanOptions
from t5prep.planning import extending, interface, questions
from t5prep.planning.chips import GIB, parse
from t5prep.planning.compiled import Compiled
from t5prep.planning.model_shapes import MODELS
from t5prep.planning.questions import Answer, Question
from t5prep.training.model.architecture import with_classes
from t5prep.training.settings.train_config import TrainConfig

pytestmark = pytest.mark.extra("libtpu")


class Compiler:
    """Answer by arithmetic: cycles and memory of a fixed part, of each encoder layer and of each decoder layer."""

    def __init__(self, *, layer: float = 0.05) -> None:
        self.layer = layer  # GiB of an encoder layer for eight rows
        self.layers: list[tuple[int, int]] = []
        self.planned: list[tuple[int, int]] = []  # of these, the memory alone

    def __call__(self, question: Question, *, save: str = "") -> Answer:
        shape = question.shape
        encoder = getattr(shape, "computed_layers", 0) or shape.num_layers
        decoder = 0 if shape.classes else shape.computed_decoder_layers or shape.num_decoder_layers
        (self.planned if question.memory_alone else self.layers).append((encoder, decoder))
        needed = int((0.5 + (encoder + decoder / 4) * self.layer * question.rows / 8) * GIB)
        cycles = 1000 + 70 * encoder + 30 * decoder
        fits = needed <= question.tpu.chip.hbm_bytes
        state = GIB // 2
        figures = {"estimated_cycles": cycles, "weight_bytes": state, "temp_bytes": needed - state}
        return Answer(question, Compiled(fits, needed, flops=encoder, **figures))


def make_question(model: str = "t5-base", **settings) -> Question:
    return Question(MODELS[model], dataclasses.replace(TrainConfig(), batch=8, **settings), parse("v5e"), 512, 64)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("T5PREP_CACHE", str(tmp_path))


@pytest.mark.parametrize(
    ("model", "models"),
    [
        ("t5-small", {(3, 3), (4, 4)}),
        ("t5-large", {(6, 6), (8, 8)}),
        ("byt5-base", {(3, 3), (4, 4), (4, 3)}),  # 18 + 6 layers
    ],
)
def test_what_is_linear_in_the_layers_is_extended_exactly(model, models, monkeypatch):
    compiler = Compiler()
    monkeypatch.setattr(questions, "ask", compiler)
    messages = []
    question = make_question(model)
    answer = extending.estimate(question, say=messages.append)
    assert set(compiler.layers) == models
    assert compiler.planned == [(question.shape.num_layers, question.shape.num_decoder_layers)]
    assert answer.extended
    full_program = Compiler()(question).compiled
    assert answer.compiled.hbm_bytes == pytest.approx(full_program.hbm_bytes, abs=16)  # rounded in each model
    assert dataclasses.replace(answer.compiled, hbm_bytes=full_program.hbm_bytes) == full_program
    small_layers, large_layers, *_ = sorted(models - {(4, 3)})
    assert messages[0].startswith(
        f"Compiling it with {small_layers[0]} + {small_layers[1]} and {large_layers[0]} + {large_layers[1]}"
    )
    assert messages[1] == f"1 of {len(models) + 1} are compiled."


@pytest.mark.parametrize("fits", [True, False])
def test_the_memory_is_planned_with_all_layers(fits, monkeypatch):
    """Temporaries, in GiB: one a layer in small models, and far less than that in the whole one."""

    def compiler(question):
        if question.memory_alone:
            return Answer(question, Compiled(fits, (9 if fits else 20) * GIB, temp_bytes=9 * GIB * fits))
        layers = question.shape.computed_layers
        return Answer(question, Compiled(True, (2 + layers) * GIB, temp_bytes=layers * GIB, estimated_cycles=layers))

    monkeypatch.setattr(questions, "ask", compiler)
    answer = extending.extended(make_question("t5-large"))
    assert answer.fits == fits
    assert answer.compiled.hbm_bytes == (2 + 9 if fits else 20) * GIB
    if fits:
        assert answer.compiled.temp_bytes == 9 * GIB
        assert answer.compiled.estimated_cycles == 24


@pytest.mark.parametrize("model", ["bert-large-uncased", "t5-base"])
def test_one_stack_of_layers_is_compiled_whole(model, monkeypatch):
    question = make_question(model)
    if model == "t5-base":  # its encoder with a head
        question = dataclasses.replace(question, shape=with_classes(question.shape, ("no", "yes")))
    compiler = Compiler()
    monkeypatch.setattr(questions, "ask", compiler)
    answer = extending.estimate(question)
    assert compiler.layers == [(question.shape.num_layers, 0)]
    assert not answer.extended


@pytest.mark.parametrize("setting", [{"remat": True}, {"shard": "auto"}])
@pytest.mark.parametrize("answering", [extending.estimate, extending.extended])
def test_layers_that_are_one_loop_or_not_known_to_fit_are_compiled_at_once(answering, setting, monkeypatch):
    compiler = Compiler()
    monkeypatch.setattr(questions, "ask", compiler)
    assert not answering(make_question(**setting)).extended
    assert (compiler.layers, compiler.planned) == ([(12, 12)], [])


def test_no_more_layers_are_computed_than_a_stack_has(monkeypatch):
    question = make_question()
    small_shape = dataclasses.replace(question.shape, num_layers=3, num_decoder_layers=6)
    compiler = Compiler()
    monkeypatch.setattr(questions, "ask", compiler)
    extending.estimate(dataclasses.replace(question, shape=small_shape))
    assert compiler.layers == [(3, 6)]


@pytest.mark.parametrize(("layer", "all_layers", "fits"), [(0.95, True, True), (1.05, True, False), (3, False, False)])
def test_all_layers_are_compiled_where_the_memory_is_nearly_full(layer, all_layers, fits, monkeypatch):
    compiler = Compiler(layer=layer)
    monkeypatch.setattr(questions, "ask", compiler)
    answer = extending.estimate(make_question())
    assert answer.fits == fits
    assert ((12, 12) in compiler.layers) == all_layers == (not answer.extended)


def test_the_largest_batch_is_found_by_small_models_alone(monkeypatch):
    compiler = Compiler()
    monkeypatch.setattr(questions, "ask", compiler)
    *_, last = interface.stages(make_question(), PlanOptions(largest=True, quick=True))
    max_rows = int((15.75 - 0.5) / (15 * 0.05) * 8)
    assert last.largest is not None
    assert max_rows * 15 / 16 - 1 <= last.largest.question.rows <= max_rows
    assert (12, 12) not in compiler.layers
    assert len(compiler.layers) <= 8
    assert last.to_json()["largest_batch"] == last.largest.question.settings.batch


def test_the_largest_batch_fits_with_its_own_program(monkeypatch):
    """Code that grows with the rows makes the batch that was found by the memory of temporaries alone too large."""

    def compiler(question):
        layers = question.shape.computed_layers or 12
        temporaries, program = GIB // 16 * question.rows, GIB // 96 * question.rows * layers // 12
        needed = temporaries + (0 if question.memory_alone else program)
        figures = {"temp_bytes": temporaries, "program_bytes": needed - temporaries}
        return Answer(question, Compiled(needed <= question.tpu.chip.hbm_bytes, needed, **figures))

    monkeypatch.setattr(questions, "ask", compiler)
    *_, last = interface.stages(make_question(), PlanOptions(largest=True, quick=True))
    max_rows = int(15.75 / (1 / 16 + 1 / 96))
    assert max_rows * 15 / 16 - 1 <= last.largest.question.rows <= max_rows
    assert last.largest.fits


def test_only_the_answer_is_searched_unless_more_is_asked(monkeypatch):
    compiler = Compiler()
    monkeypatch.setattr(questions, "ask", compiler)
    (only,) = interface.stages(make_question(), PlanOptions(quick=True))
    assert (only.fits, only.searched, sorted(compiler.layers)) == (True, False, [(3, 3), (4, 4)])
    assert not {"largest_batch", "advice"} & only.to_json().keys()
    assert only.to_json()["exact"] is False
    (exact,) = interface.stages(make_question(), PlanOptions(exact=True, quick=True))
    assert exact.to_json()["exact"] is True


def test_what_training_remembers_comes_from_the_small_models_too(monkeypatch):
    compiler = Compiler(layer=3)
    answers = {}
    monkeypatch.setattr(extending, "recall", lambda question: answers.get(question))
    assert extending.recalled(make_question()) is None
    needed = extending._needed(make_question())
    assert list(needed) == [(4, 4), (3, 3), (12, 12)]
    for question in needed.values():
        assert extending.recalled(make_question()) is None
        answers[question] = compiler(question)
    remembered = extending.recalled(make_question())
    assert remembered is not None
    assert not remembered.fits
