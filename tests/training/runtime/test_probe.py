"""A look at the devices: the same step as train's, on whatever is there."""

import math

import pytest
from raised import raises

from t5prep.errors import T5prepError
from t5prep.training.runtime import probe
from t5prep.training.runtime.devices import open_layout


def test_a_tiny_step_runs_on_all_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    description = probe.look(open_layout(replicas=2))
    assert description["devices"] == 2
    assert description["kind"] == "cpu"
    assert description["versions"].keys() == {"jax"}
    assert description["loss"] == pytest.approx(math.log(probe.TOY.vocab_size), rel=0.5)
    monkeypatch.setattr(probe, "tiny_step", lambda layout: math.nan)
    with raises(T5prepError, "device.faulty", "nan"):
        probe.look(open_layout())
