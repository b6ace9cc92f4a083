"""Settings: one field is the option, what the manifest says, and what makes two datasets the same."""

import dataclasses
import json

import pytest
from raised import raises

from t5prep.dataset import manifest
from t5prep.dataset.settings import Settings, differences, parse_splits
from t5prep.errors import UsageError
from t5prep.tasks import registry

CHOSEN = Settings("text2text", {"protect": ["q"], "id_column": ""}, 512, 128, splits={"train": 0.9, "test": 0.1})


@pytest.mark.parametrize(
    ("name", "value", "typed"),
    [
        ("task", "sst2", "task text2text"),
        ("options", {"protect": [], "id_column": ""}, "--protect q"),
        ("options", {"protect": ["q"], "id_column": "id"}, "no --id-column"),
        ("input_length", 64, "--input-length 512"),
        ("masks", True, "no --masks"),
        ("splits", None, "--splits train=0.9,test=0.1"),
        ("splits", {"test": 0.1, "train": 0.9}, "--splits train=0.9,test=0.1"),  # drawn in this order
        ("seed", 1, "--seed 0"),
        ("limit", 7, "no --limit"),
        ("layout", "ragged", "--layout padded"),
    ],
)
def test_what_differs_is_said_as_one_types_it(name: str, value: object, typed: str) -> None:
    changed_settings = dataclasses.replace(CHOSEN, **{name: value})
    assert list(differences(CHOSEN, changed_settings)) == [typed]
    assert changed_settings != CHOSEN


def test_the_number_of_shards_makes_no_other_dataset() -> None:
    assert dataclasses.replace(CHOSEN, shards=4) == CHOSEN
    assert not list(differences(CHOSEN, dataclasses.replace(CHOSEN, shards=4)))


def test_what_json_keeps_is_equal_to_what_was_written() -> None:
    assert manifest.converter().structure(json.loads(json.dumps(dataclasses.asdict(CHOSEN))), Settings) == CHOSEN


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("input_length", 3, ("option.out-of-range", "--input-length", "3", "4")),
        ("target_length", 1, ("option.out-of-range", "1")),
        ("truncation", "middle", ("option.unknown-choice", "--truncation", "middle", "head_tail, head, tail")),
        ("shards", 0, ("option.out-of-range", "--shards", "0", "1")),
        ("limit", 0, ("option.out-of-range", "--limit", "0", "1")),
        ("seed", 1 << 63, ("option.out-of-range", "--seed", "9223372036854775808", "9223372036854775807")),
    ],
)
def test_a_value_that_cannot_work_is_a_sentence(name: str, value: object, says: tuple[str, ...]) -> None:
    with raises(UsageError, *says):
        dataclasses.replace(CHOSEN, **{name: value})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("validation=100,train=500", "--splits validation=100,train=1"),
        ("train=500", "--splits train=1"),
        ("train=0.5,validation=0.4", "0.9"),
        ("train=2,test=0.5", "0.5"),
        ("train=1,train=1", "twice"),
        ("train=100, train=1", "twice"),
    ],
)
def test_splits_that_leave_rows_without_a_split(text: str, value: str) -> None:
    """The advice can be typed as it stands."""
    with raises(UsageError, "split.invalid-shares", text, value):
        parse_splits(text)
    if value.startswith("--splits "):
        assert parse_splits(value.removeprefix("--splits "))["train"] == 1


def test_every_option_has_a_help_text() -> None:
    for field in dataclasses.fields(Settings):
        assert field.metadata.get("help") or field.name in ("task", "options")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_is_none_is_refused(value: float) -> None:
    """--near-jaccard nan was accepted, and turned it off."""
    with raises(UsageError, "option.out-of-range", str(value), "--near-jaccard"):
        dataclasses.replace(CHOSEN, dedup="near", near_jaccard=value)
    with raises(UsageError, "option.out-of-range", str(value), "--density"):
        registry.get("span_corruption").choose({"density": value})
