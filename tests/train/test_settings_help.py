"""Each setting is explained in half a line."""

import dataclasses

from click.testing import CliRunner

from t5prep.cli import main
from t5prep.train.settings.config import TrainConfig
from t5prep.train.settings.settings_help import HELP


def test_each_setting_is_explained() -> None:
    names = [field.name for field in dataclasses.fields(TrainConfig)]
    assert set(names) <= set(HELP)
    assert all(len(words) > 8 for words in HELP.values())
    said = CliRunner().invoke(main, ["train", "--settings"], catch_exceptions=False).output
    assert [line.split()[0] for line in said.splitlines()[: len(names)]] == names
    assert f"batch = 128                 {HELP['batch']}" in said
