"""The real TPU compiler, on this machine: every chip compiles a toy, says what does not fit, and is asked only once."""

import dataclasses
import importlib.metadata
import os
import types
from pathlib import Path

import pytest
from raised import raises
from tpu_compiler import compile_module, one_compiler  # noqa: F401 - a fixture

from t5prep.errors import T5prepError, UsageError
from t5prep.planning import compiled, compiler, report
from t5prep.planning.chips import CHIPS, GIB, parse
from t5prep.planning.model_shapes import MODELS
from t5prep.planning.questions import Answer, Question
from t5prep.training.settings.train_config import TrainConfig

os.environ.setdefault("JAX_PLATFORMS", "cpu")
import jax

pytestmark = pytest.mark.extra("libtpu")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("T5PREP_CACHE", str(tmp_path))


def module_of(function, *shapes, dtype="bfloat16") -> bytes:
    lowered = jax.jit(function).lower(*(jax.ShapeDtypeStruct(shape, dtype) for shape in shapes))
    return lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()


def product(a, b):
    return a @ b


@pytest.mark.parametrize("name", ["v5e", *(pytest.param(name, marks=pytest.mark.slow) for name in ("v3", "v4", "v6e"))])
def test_a_product_costs_at_least_what_the_chip_can_do(name):
    """The compiler's cycles at a chip's clock are those of its peak: no other test compares the two."""
    n = 2048
    chip = CHIPS[name]
    program = compile_module(module_of(product, (n, n), (n, n)), chip=chip)
    assert program.fits
    assert program.versions == compiled.versions()
    assert program.argument_bytes == 2 * n * n * 2
    assert program.hbm_bytes >= 3 * n * n * 2
    assert 2 * n**3 <= program.flops < 2.01 * 2 * n**3
    # The compiler's estimate at the clock of the table is below the peak of the table, and not by much.
    assert 0.5 < 2 * n**3 / (program.estimated_cycles / chip.clock_hz) / chip.peak_flops < 1.0


def test_a_loop_counts_once_per_trip():
    def looped(a, b):
        return jax.lax.fori_loop(0, 20, lambda _, x: x @ b, a)

    chip = CHIPS["v5e"]
    program = compile_module(module_of(looped, (1024, 1024), (1024, 1024)), chip=chip)
    assert program.estimated_cycles / chip.clock_hz > 20 * 2 * 1024**3 / chip.peak_flops


def test_what_does_not_fit_says_how_much_it_needs():
    n = 65536
    program = compile_module(module_of(lambda a: (a @ a) @ a.T, (n, n)), chip=CHIPS["v3"])
    assert not program.fits
    assert program.hbm_bytes >= 2 * n * n * 2 > CHIPS["v3"].hbm_bytes


@pytest.mark.slow
@pytest.mark.parametrize("chip", CHIPS.values(), ids=list(CHIPS))
def test_the_table_holds_the_memory_that_the_compiler_knows(chip, monkeypatch):
    """Of every chip, from the error of the compiler itself."""
    monkeypatch.setattr(compiled, "_OUT_OF_MEMORY", compiled.re.compile("never"))
    with raises(T5prepError, "device.insufficient-memory", "exceeds available HBM") as raised:
        compile_module(module_of(lambda a: (a @ a) @ a.T, (2**18, 2**18)), chip=chip)
    assert f"exceeds available HBM ({chip.hbm_bytes / GIB:.2f}G)" in str(raised.value)


def test_what_is_missing_or_unknown_is_one_sentence(monkeypatch):
    module = module_of(product, (256, 256), (256, 256))
    odd = dataclasses.replace(CHIPS["v5e"], topology="v99:1x1")
    with raises(UsageError, "plan.unsupported-topology", importlib.metadata.version("libtpu"), "v99:1x1"):
        compile_module(module, chip=odd)
    with raises(T5prepError, "step.compilation-failure", "v5e"):
        compiled._read({"error": "INVALID_ARGUMENT: no module"}, chip=CHIPS["v5e"], topology="v5e:1x1")
    monkeypatch.setattr(compiled.importlib.util, "find_spec", lambda name: None)
    with raises(UsageError, "install.extra-missing"):
        compile_module(module, chip=CHIPS["v5e"])


def test_a_step_in_float32_multiplies_float32_on_a_tpu(tmp_path: Path) -> None:
    """By itself a TPU would round both sides of each product to bfloat16."""
    import tensorflow as tf

    from t5prep.training.model.weight_layout import weight_layouts
    from t5prep.training.runtime import probe
    from t5prep.training.runtime.lowering import lower
    from t5prep.training.settings.train_config import TrainConfig
    from t5prep.training.step.optimizer import AdamW
    from t5prep.training.step.step import TrainStep, batch_specs

    step = TrainStep(probe.TOY, AdamW(), TrainConfig(dropout=0.0, z_loss=0.0))
    weights = {name: tf.TensorSpec(layout.shape) for name, layout in weight_layouts(probe.TOY).items()}
    rows = batch_specs(2, input_length=8, target_length=4)
    lowered = lower(step.gradients, weights, rows, tf.TensorSpec([], tf.int32), dtype=tf.float32)
    dump_path = tmp_path / "compiled.txt"
    compile_module(lowered.module, chip=CHIPS["v5e"], text_path=dump_path)
    text = dump_path.read_text()
    assert "operand_precision={highest" in text
    assert "bf16[" not in text
    assert tf.config.experimental.tensor_float_32_execution_enabled()


COMPILED = """HloModule step

%body.1 (p: (s32[], f32[8])) -> (s32[], f32[8]) {
  ROOT %f.1 = f32[8]{0} fusion(%p), metadata={op_name="while/add"}, backend_config={"estimated_cycles":"7"}
}

%cond.2 (p: (s32[], f32[8])) -> pred[] {
  %bound = s32[]{:T(128)} constant(12)
  ROOT %lt = pred[]{:T(512)} compare(%p, %bound), direction=LT
}

%unused (p: f32[8]) -> f32[8] {
  ROOT %f.2 = f32[8]{0} fusion(%p), backend_config={"estimated_cycles":"1000"}
}

ENTRY %main.3 (p: f32[8]) -> f32[8] {
  %w = (s32[], f32[8]) while(%p), condition=%cond.2, body=%body.1
  ROOT %f.3 = f32[8]{0} fusion(%w), metadata={op_name="a/b/c"}, backend_config={"estimated_cycles":"16"}
}
"""


class Executable:
    """A compiled program whose text is not written as today's libtpu writes it."""

    def as_text(self) -> str:
        return COMPILED.replace("estimated_cycles", "cycles_expected")

    def memory_analysis(self):
        return types.SimpleNamespace(
            **{f"{kind}_size_in_bytes": 8 for kind in ("argument", "output", "alias", "temp", "generated_code")}
        )

    def cost_analysis(self) -> dict[str, float]:
        return {"flops": 64.0}


def test_a_compiler_that_says_no_cycles_is_named_and_the_rest_is_answered(monkeypatch):
    monkeypatch.setattr(compiler.importlib.metadata, "version", lambda _: "9.9")
    program = compiled._read(compiler.read(Executable()), chip=CHIPS["v5e"], topology="v5e:1x1")
    question = Question(MODELS["t5-base"], TrainConfig(batch=8), parse("v5e"), 512, 64)
    answer = Answer(question, program)
    text = "\n".join(report.lines(answer, model="t5-base"))
    assert "a step        of unknown time: libtpu 9.9 writes no estimated cycles" in text
    assert " ms " not in text
    assert program.flops == 64
    assert program.hbm_bytes == 24
    table = report.table([(answer, None), (answer, None)])
    assert "yes" in table[1]


def test_memory_that_is_needed_and_said_in_other_words_names_the_version():
    compiler_output = {"error": "RESOURCE_EXHAUSTED: it takes too much\nmore"}
    with raises(
        T5prepError, "device.insufficient-memory", importlib.metadata.version("libtpu"), "RESOURCE_EXHAUSTED", "v5e"
    ):
        compiled._read(compiler_output, chip=CHIPS["v5e"], topology="v5e:1x1")


def test_temporaries_are_read_from_the_dump_or_left_to_the_end(tmp_path):
    plan = tmp_path / "m.after_optimizations-buffer-assignment.txt"
    plan.write_text(
        "allocation 3: size 96, page 1, preallocated-temp:\nallocation 4: size 4, page 2, preallocated-temp:\n"
    )
    assert compiler.planned_temporaries(tmp_path) is None
    (tmp_path / "m.after_optimizations.txt").touch()
    assert compiler.planned_temporaries(tmp_path) == 100
    plan.write_text("allocation 3 has 96 bytes\n")
    assert compiler.planned_temporaries(tmp_path) is None


def test_compiled_text_is_read():
    assert compiler.estimated_cycles(COMPILED) == 12 * 7 + 16
    assert compiler.by_operation(COMPILED) == {"add": 84, "c": 16}


@pytest.mark.parametrize(
    ("name", "chip", "devices", "chips"),
    [
        ("v2-8", "v2", 8, 4),
        ("v3-8", "v3", 8, 4),
        ("V3-32", "v3", 32, 16),
        ("v4-8", "v4", 8, 4),
        ("v5e-8", "v5e", 8, 8),
        ("v5litepod-16", "v5e", 16, 16),
        ("v5p-8", "v5p", 4, 4),
        ("v6e-4", "v6e", 4, 4),
        ("v6e", "v6e", 1, 1),
        ("tpu7x-8", "tpu7x", 8, 4),
    ],
)
def test_names_of_tpus(name, chip, devices, chips):
    tpu = parse(name)
    assert (tpu.chip.name, tpu.devices, tpu.chips) == (chip, devices, chips)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("v1-8", "device.unknown-type"),
        ("a100", "device.unknown-type"),
        ("", "device.unknown-type"),
        ("v5p-7", "device.invalid-size"),
        ("v3-0", "device.invalid-size"),
        ("v5e-9", "device.invalid-size"),
        ("v6e-12", "device.invalid-size"),
    ],
)
def test_tpus_that_do_not_exist(name, code):
    with raises(UsageError, code, f'"{name}"'):
        parse(name)
