"""`t5prep plan`: the searches on a chip made of arithmetic, the length planner, and the real step through the real compiler."""

import dataclasses
import itertools
import json
import math

import numpy as np
import pytest
import toy_dataset
from click.testing import CliRunner
from raised import assert_error, raises, refused
from tpu_compiler import one_compiler  # noqa: F401 - a fixture

from t5prep.cli import main
from t5prep.errors import UsageError
from t5prep.options.models import PlanOptions
from t5prep.planning import batch_search, compiled, interface, lengths, report
from t5prep.planning.chips import CHIPS, GIB, parse
from t5prep.planning.compiled import Compiled
from t5prep.planning.lengths import Shape
from t5prep.planning.model_shapes import MODELS, shape_of
from t5prep.planning.questions import Answer, Question, ask, check
from t5prep.training.model.architecture import Config, training_flops
from t5prep.training.model.weight_layout import weight_layouts
from t5prep.training.settings import train_config
from t5prep.training.settings.train_config import TrainConfig

TINY = {"model_type": "t5", "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4, "vocab_size": 512}


def a_question(**settings) -> Question:
    config = dataclasses.replace(TrainConfig(), **{"batch": 8, **settings})
    return Question(MODELS["t5-base"], config, parse("v5e"), 512, 64)


def arithmetic(state: float, row: float, *, remat: float = 0.25):
    """A compiler that needs `state` GiB and `row` GiB for each row of 512 tokens in memory at once."""
    questions = []

    def ask(question: Question) -> Answer:
        questions.append(question)
        rows = question.rows / question.settings.accumulate
        row_gib = row * (remat if question.settings.remat else 1) * question.input_length / 512
        needed = int((state + rows * row_gib) * GIB)
        fits = needed <= question.tpu.chip.hbm_bytes
        return Answer(question, Compiled(fits, needed, estimated_cycles=1000))

    return ask, questions


@pytest.mark.parametrize(("state", "row"), [(1, 1), (0.1, 0.01), (8, 1.3), (15.7, 0.01), (3, 12), (0, 4)])
@pytest.mark.parametrize("start", [1, 8, 512])
def test_the_largest_batch_is_found_in_a_few_compilations(state, row, start):
    ask, questions = arithmetic(state, row)
    answer = batch_search.largest_batch(a_question(batch=start), compile_question=ask)
    max_rows = int((CHIPS["v5e"].hbm_bytes / GIB - state) / row)
    assert answer is not None
    assert answer.fits
    assert max_rows * 15 / 16 - 1 <= answer.question.rows <= max_rows
    assert len(questions) <= 6


def test_accumulated_batches_stay_whole_and_nothing_may_fit():
    ask, _ = arithmetic(1, 1)
    answer = batch_search.largest_batch(a_question(accumulate=4), compile_question=ask)
    assert answer.question.rows % 4 == 0
    ask, _ = arithmetic(20, 1)
    assert batch_search.largest_batch(a_question(), compile_question=ask) is None


def words(question, ask):
    return [advice.words for advice in batch_search.advise(question, compile_question=ask)]


def test_advice_comes_in_the_order_of_its_cost_and_only_where_it_fits():
    assert words(a_question(), arithmetic(1, 4)[0]) == [
        "--set accumulate=4",
        "--set remat=true (activations are computed again)",
        "--input-length 128 --target-length 16",
        "--tpu v5p-2",  # 33 GiB are too much for a v6e
    ]
    # Not even one row: recomputing makes it fit, together with accumulation.
    assert words(a_question(), arithmetic(8, 12)[0])[0] == "--set remat=true --set accumulate=4"
    # Weights alone are too large: only another chip helps.
    assert words(a_question(), arithmetic(20, 0.1)[0]) == ["--tpu v6e-1"]
    assert words(a_question(), arithmetic(200, 0.1)[0]) == []


def test_a_state_that_does_not_fit_is_answered_by_another_optimizer_and_nothing_smaller_is_tried():
    questions = []

    def ask(question: Question) -> Answer:
        questions.append(question)
        slots = 12 if question.settings.optimizer == "adamw" else 0
        needed = (6 + slots + (8 if not question.settings.remat else 1)) * GIB
        fits = needed <= question.tpu.chip.hbm_bytes
        state = Compiled(fits, needed, estimated_cycles=1000)
        return Answer(question, dataclasses.replace(state, weight_bytes=6 * GIB, slot_bytes=slots * GIB))

    question = a_question(optimizer="adamw")
    assert words(question, ask) == ["--set optimizer=adafactor", "--tpu v6e-1"]
    assert {(candidate.settings.accumulate, candidate.input_length) for candidate in questions} == {(1, 512)}
    on_v2 = dataclasses.replace(question, tpu=parse("v2"))
    assert words(on_v2, ask)[0] == "--set optimizer=adafactor --set remat=true"
    questions.clear()
    assert batch_search.largest_batch(on_v2, compile_question=ask) is None
    assert len(questions) == 1


def test_a_batch_that_devices_cannot_share_is_refused():
    question = dataclasses.replace(a_question(batch=12), tpu=parse("v3-8"))
    with raises(UsageError, "device.indivisible-batch", "8"):
        check(question)
    check(question.with_(batch=16))


@pytest.mark.parametrize("changed", [{"batch": 10**20}, {"lengths": (10**20, 8)}, {"lengths": (8, 2**31)}])
def test_a_number_that_no_program_takes_is_refused(changed):
    with raises(UsageError, "option.out-of-range", "2,147,483,647"):
        check(a_question().with_(**changed))


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"num_layers": 2**31}, ("model.invalid-config",)),
        ({"num_layers": 1001}, ("model.invalid-config",)),
        ({"d_model": 2**31}, ("model.invalid-config",)),
        ({"a": "x" * 2**24}, ("model.invalid-config",)),
        ({"d_model": 2**24, "vocab_size": 2**24}, ("plan.oversized-model",)),
        ({"d_model": 2**24, "d_ff": 2**24, "d_kv": 2**24, "num_layers": 1000}, ("plan.oversized-model",)),
    ],
)
def test_a_forged_model_is_refused_before_the_compiler_starts(entries, message, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(TINY | entries))
    with raises(UsageError, *message):
        check(dataclasses.replace(a_question(), shape=shape_of(str(tmp_path))))


@pytest.mark.parametrize(
    "changed", [{"lengths": (2**28, 8)}, {"lengths": (512, 2**30)}, {"batch": 2**30, "lengths": (2**20, 8)}]
)
def test_a_step_that_no_tpu_ends_is_refused_before_the_compiler_starts(changed):
    with raises(UsageError, "plan.oversized-step"):
        check(a_question().with_(**changed))


@pytest.mark.parametrize(
    ("name", "millions"),
    # Published parameter counts: Raffel et al. 2020 (table 14), Xue et al. 2021 and 2022.
    [
        ("t5-small", 60.5), ("t5-base", 222.9), ("t5-large", 737.7), ("t5-3b", 2851.6), ("google/t5-v1_1-base", 247.6),
        ("google/flan-t5-large", 783.2), ("google/mt5-small", 300.2), ("google/mt5-base", 582.4), ("google/byt5-small", 299.6),
        ("google/byt5-base", 581.7),
    ],
)  # fmt: skip
def test_published_shapes_have_the_published_number_of_weights(name, millions):
    layouts = weight_layouts(shape_of(name)).values()
    assert sum(int(np.prod(layout.shape)) for layout in layouts) / 1e6 == pytest.approx(millions, rel=2e-3)


def test_an_unknown_model_names_the_closest(tmp_path):
    with raises(UsageError, "model.not-found", '"t5-larg"', '"t5-large"'):
        shape_of("t5-larg")
    assert shape_of("tiny").d_model == 64
    assert (shape_of("tiny").model_type, shape_of("tiny", classes=True).model_type) == ("t5", "bert")  # as `train`
    (tmp_path / "config.json").write_text("{}")
    with raises(UsageError, "model.invalid-config", '"model_type"'):
        shape_of(str(tmp_path))


def cost(inputs: int, targets: int) -> float:
    return training_flops(MODELS["t5-base"], input_length=inputs, target_length=targets)


def random_joint(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    buckets = {
        (16 * int(rng.integers(1, 33)), 4 * int(rng.integers(1, 17))): int(rng.integers(1, 500)) for _ in range(60)
    }
    return np.array([(*bucket, count) for bucket, count in buckets.items()])


@pytest.mark.parametrize("seed", range(5))
def test_every_layout_holds_every_example_it_says(seed):
    joint = random_joint(seed)
    rows = joint[:, 2].sum()
    for choice in lengths.choices(joint, prepared=(512, 64), cost=cost):
        assert 0 <= choice.padding < 1
        if choice.name == "packed":
            assert 0 < choice.shapes[0].rows < rows
            positions = choice.shapes[0].rows * choice.shapes[0].input_length
            assert positions >= (joint[:, 0] * joint[:, 2]).sum() * 0.97  # the sample's error
            continue
        assert sum(shape.rows for shape in choice.shapes) == rows
        longest = choice.shapes[-1]
        uncut_buckets = joint[
            (joint[:, 0] <= longest.input_length) & (joint[:, 1] <= max(s.target_length for s in choice.shapes))
        ]
        assert uncut_buckets[:, 2].sum() >= rows * (1 - choice.cut) - 1e-6
        assert choice.cut <= 0.02


def test_two_shapes_part_where_an_epoch_is_cheapest():
    joint = random_joint(7)
    two = next(
        choice for choice in lengths.choices(joint, prepared=(512, 64), cost=cost) if choice.name == "two shapes"
    )
    price = sum(shape.rows * cost(shape.input_length, shape.target_length) for shape in two.shapes)
    for border in sorted(set(joint[:, 0].tolist()))[:-1]:
        short, long = joint[joint[:, 0] <= border], joint[joint[:, 0] > border]
        border_price = sum(
            part[:, 2].sum() * cost(-(-part[:, 0].max() // 8) * 8, min(-(-part[:, 1].max() // 8) * 8, 64))
            for part in (short, long)
        )
        assert price <= border_price + 1


def test_an_epoch_is_whole_steps_on_all_chips():
    question = dataclasses.replace(a_question(batch=64), tpu=parse("v3-8"))
    answer = Answer(question, Compiled(True, GIB, flops=10**12, estimated_cycles=940_000_000))
    epoch = report.epoch(answer, rows=6401, price=2.0)
    assert (epoch.steps, epoch.rows) == (101, 6401)
    assert epoch.hours == pytest.approx(101 / 3600)
    assert epoch.price == pytest.approx(101 / 3600 * 4 * 2.0)
    assert report.epoch_seconds(lengths.Choice("x", (Shape(512, 64, 6401),), 0.1), [answer]) == pytest.approx(101)


def invoke(*arguments: str):
    return CliRunner().invoke(main, ["plan", *arguments])


real = pytest.mark.extra("libtpu")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--model", "t5-base", "--tpu", "v9-8"], ("device.unknown-type", '"v9-8"')),
        (["--model", "t5-bose"], ("model.not-found", '"t5-bose"', '"t5-base"')),
        ([], ("option.missing", "--model")),
        (["--model", "t5-base", "--lengths"], ("option.missing", "--lengths", "--data")),
        (["--model", "t5-base", "--batch", "8", "--batch", "16"], ("option.missing-prerequisite", "--sweep")),
        pytest.param(
            ["--model", "t5-base", "--batch", "12", "--quick"],
            ("device.indivisible-batch", " 12 ", "--batch 8"),
            marks=real,
        ),
        (["--model", "t5-base", "--set", "remot=1"], ("setting.unknown", '"remot"', '"remat"')),
        (["--data", "nowhere", "--model", "t5-base"], ("dataset.not-found", "nowhere")),
    ],
)
def test_what_cannot_be_planned_is_one_sentence(arguments, error):
    refused(*error, command=("plan", *arguments))


@pytest.fixture
def tiny(tmp_path, monkeypatch) -> str:
    monkeypatch.setenv("T5PREP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(TINY))
    return str(tmp_path / "model")


@real
def test_the_real_step_is_planned(tiny):
    """By the command, to the compiler and back from the cache; the searches above ask a chip made of arithmetic."""
    arguments = ["--model", tiny, "--tpu", "v5e", "--batch", "4", "--input-length", "32", "--target-length", "8"]
    result = invoke(*arguments, "--quick", "--json")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert summary["fits"] is True
    assert (
        0 < summary["weight_bytes"] + summary["optimizer_bytes"] < summary["hbm_bytes"] < summary["hbm_capacity_bytes"]
    )
    assert summary["flops"] > 4 * training_flops(shape_of(tiny), input_length=32, target_length=8) * 0.9
    assert summary["estimated_step_seconds"] == pytest.approx(summary["estimated_cycles"] / CHIPS["v5e"].clock_hz)
    assert 0 < summary["estimated_share_of_peak"] < 1
    cached_result = invoke(*arguments, "--quick")  # from the cache: as text
    assert "fits" in cached_result.stdout
    assert "not a measurement" in cached_result.stdout


def test_adapters_are_planned_with_what_they_save():
    """By hand: 144 matrices of 768 x 768 in attention and 48 of 768 x 3,072, each with two of rank 8."""
    adapters = 8 * (144 * (768 + 768) + 48 * (768 + 3072))
    settings = {"lora": 8, "optimizer": "adamw"}
    options = PlanOptions(model="t5-base", batch=(4,), settings=settings)
    (question,), _ = interface.resolve_questions(options, tpus=["v5e"])
    line = report.lora_line(question)
    assert f"{adapters:,} parameters in adapters of 222,903,552" in line
    assert "a checkpoint is 38.9 MB instead of 2.7 GB; all weights would have 1.8 GB of optimizer state" in line
    assert f"{12 * adapters / 1e6:.1f} MB" == "38.9 MB"


def train(*arguments: str):
    return CliRunner().invoke(main, ["train", "--out", "nowhere", *arguments])


def test_a_dry_run_needs_the_type_of_a_tpu(monkeypatch):
    monkeypatch.delenv("TPU_ACCELERATOR_TYPE", raising=False)
    result = train("--tpu", "--dry-run", "--data", "x", "--model", "t5-base")
    assert result.exit_code == 1
    assert_error(result.stderr, "option.missing", "TPU_ACCELERATOR_TYPE", "--tpu v5e-8 --dry-run")


@real
@pytest.mark.slow
def test_a_dry_run_asks_what_training_would_and_training_remembers_it(tiny, tmp_path, monkeypatch):
    toy_dataset.write(tmp_path / "data", {"train": [8]}, length=16)
    monkeypatch.setenv("TPU_ACCELERATOR_TYPE", "v5litepod-1")
    arguments = ["--tpu", "--data", str(tmp_path / "data"), "--model", tiny, "--set", "batch=4"]
    small = dataclasses.replace(CHIPS["v5e"], hbm_bytes=1000)
    monkeypatch.setitem(CHIPS, "v5e", small)
    monkeypatch.setattr(compiled, "_run", lambda *_, **__: {})
    monkeypatch.setattr(compiled, "_read", lambda *_, **__: Compiled(fits=False, hbm_bytes=12 * GIB))
    monkeypatch.setattr(batch_search, "largest_batch", lambda question, **_: None)
    monkeypatch.setattr(batch_search, "advise", lambda question, **_: iter(()))
    result = train("--dry-run", *arguments)
    assert result.exit_code == 0, result.output
    assert "DOES NOT FIT" in result.stdout
    result = train(*arguments)  # there is no TPU here, so it ends; but first it warns
    assert result.exit_code == 1
    assert "12.00 GiB" in result.stderr
    assert_error(result.stderr, "device.missing-tpu")


def _float32_bytes(shape: Config) -> int:
    return 4 * sum(math.prod(layout.shape) for layout in weight_layouts(shape).values())


@real
@pytest.mark.slow
def test_replicas_and_every_option_compile(tiny):
    """On chips of two devices each; test_the_executable_is_kept_for_a_run compiles for chips of one."""
    settings = {"optimizer": "adamw", "clip_norm": 1.0, "accumulate": 2, "remat": True}
    options = PlanOptions(model=tiny, batch=(16,), input_length=32, target_length=8, packed=True, settings=settings)
    (question,), _ = interface.resolve_questions(options, tpus=["v3-8"])
    answer = ask(question)
    assert answer.fits
    weights = _float32_bytes(question.shape)
    assert answer.compiled.slot_bytes == 2 * weights
    assert weights < answer.compiled.weight_bytes < 1.5 * weights  # matrices have bfloat16 copies, too


def _toy_of(recipe: str) -> tuple[Config, TrainConfig]:
    """Return a narrow model of the recipe's kind, and the recipe's settings."""
    recipe_settings = train_config.read_recipe(recipe)
    like = [name for name in sorted(MODELS, key=len) if name in recipe_settings["model"]] or ["t5-v1_1-small"]
    published = MODELS["bert-base-uncased" if recipe == "tiny_bert" else like[-1]]
    toy = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 1, "num_decoder_layers": 1, "num_heads": 4}
    overrides = {name: value for name, value in toy.items() if hasattr(published, name)}
    return dataclasses.replace(published, vocab_size=512, **overrides), train_config.build(recipe_settings)


def _computed(recipe: str) -> set[str]:
    """Return what a recipe's step computes besides what every step does."""
    shape, settings = _toy_of(recipe)
    kind = [type(shape).__name__, *(str(getattr(shape, name, "")) for name in ("gated", "tie_word_embeddings"))]
    numbers = ("weight_decay", "clip_norm", "dropout", "label_smoothing", "z_loss", "remat", "lora")
    on = {name for name in numbers if getattr(settings, name)} | {settings.optimizer, settings.dtype, " ".join(kind)}
    if settings.optimizer == "adafactor":
        on.add(f"parameter_scale {settings.parameter_scale}")
    return on | ({"accumulate"} if settings.accumulate > 1 else set())


def _recipes_that_compute_most() -> list[str]:
    """Return the recipes without those whose step computes nothing that the step of another one does not."""
    computed = {name: _computed(name) for name in train_config.recipes()}
    selected_recipes: list[str] = []
    for name in sorted(computed, key=lambda name: (-len(computed[name]), name)):
        if not any(computed[name] <= computed[recipe] for recipe in selected_recipes):
            selected_recipes.append(name)
    return selected_recipes


@real
@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "tpu"),
    list(zip(_recipes_that_compute_most(), itertools.cycle(["v5e", "v4", "v3", "v6e"]), strict=False)),
)
def test_every_kind_of_recipe_compiles_as_a_toy(recipe, tpu, tmp_path, monkeypatch):
    """Each on one chip: what a chip cannot do depends on few of their settings."""
    monkeypatch.setenv("T5PREP_CACHE", str(tmp_path))
    shape, settings = _toy_of(recipe)
    settings = dataclasses.replace(settings, batch=2)
    assert ask(Question(shape, settings, parse(tpu), 32, 1 if "bert" in recipe else 8)).fits
