"""The matrix peak of a device: measured by products, kept as a program, and turned into the least seconds of a step."""

import types
from pathlib import Path

import pytest

from t5prep.training import trainer
from t5prep.training.model.architecture import EncoderConfig, training_flops
from t5prep.training.runtime import matrix_peak
from t5prep.training.runtime.devices import open_layout
from t5prep.training.settings.train_config import TrainConfig


def test_more_products_in_a_second_are_a_higher_peak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache_path = str(tmp_path / "programs")
    ticks = iter([0.0, 9.0, *(float(second) for index in range(5) for second in (10 * index, 10 * index + 2))])
    monkeypatch.setattr(matrix_peak.time, "perf_counter", lambda: next(ticks))
    # 16 products of 2 × 32³ FLOPs in 2 s; the first round, of 9 s, does not count.
    assert matrix_peak.measure(open_layout(), cache_path=cache_path, side=32) == 16 * 2 * 32**3 / 2
    assert len(list(Path(cache_path).glob("*.executable"))) == 1  # the next start compiles nothing


def test_a_step_takes_at_least_its_products_at_the_peak(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(matrix_peak, "measure", lambda layout, cache_path: 400e12)
    devices = [types.SimpleNamespace(device_kind="NVIDIA H100")] * 2
    gpus, shape = types.SimpleNamespace(platform="cuda", devices=devices), EncoderConfig()
    config = TrainConfig(batch=64, dtype="bfloat16")
    seconds = trainer._peak_per_step(config, shape, gpus, [(128, 1)], cache_path="")
    assert seconds == 64 * training_flops(shape, input_length=128, target_length=1) / (2 * 400e12)
    assert capsys.readouterr().err == "Matrix peak: 400 TFLOP/s of a NVIDIA H100 in bfloat16, measured now.\n"


def test_where_the_peak_says_nothing_it_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix_peak, "measure", lambda layout, cache_path: pytest.fail("it was measured"))
    config, shape = TrainConfig(batch=64, dtype="bfloat16"), EncoderConfig()
    gpu = types.SimpleNamespace(platform="cuda", devices=[None])
    cpu = types.SimpleNamespace(platform="cpu", devices=[None])
    in_float32, with_adapters = TrainConfig(batch=64, dtype="float32"), TrainConfig(batch=64, dtype="bfloat16", lora=4)
    for settings, layout, lengths in (
        (config, cpu, [(128, 1)]),
        (in_float32, gpu, [(128, 1)]),
        (with_adapters, gpu, [(128, 1)]),
        (config, gpu, [(128, 1), (64, 1)]),
    ):
        assert trainer._peak_per_step(settings, shape, layout, lengths, cache_path="") == 0.0
