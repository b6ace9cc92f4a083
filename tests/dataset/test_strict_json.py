"""Very many small objects of JSON are made as they are read; whatever is not exactly one of them is still checked."""

import dataclasses
import json

import cattrs
import pytest

from t5prep.dataset import manifest, strict_json
from t5prep.dataset.manifest import Shard, SourceFile
from t5prep.errors import DatasetError

SHARD = {"name": "train.tfrecord-00000-of-00001", "records": 1, "bytes": 2, "sha256": "a" * 64}


def test_what_is_exactly_a_shard_becomes_one() -> None:
    kinds = (Shard, SourceFile)
    assert strict_json.parse(json.dumps([SHARD]), many=kinds) == [Shard(**SHARD)]
    for other in ({**SHARD, "records": 1.5}, {**SHARD, "more": 1}, {**SHARD, "records": True}, {"name": "x"}, {}):
        assert strict_json.parse(json.dumps([other]), many=kinds) == [other]
    made = strict_json.converter(many=kinds).structure([Shard(**SHARD), SHARD], list[Shard])
    assert made == [Shard(**SHARD)] * 2
    with pytest.raises(cattrs.BaseValidationError):
        strict_json.converter(many=kinds).structure([{**SHARD, "more": 1}], list[Shard])


def test_a_shard_in_a_place_where_none_belongs_is_no_manifest(toy: manifest.Manifest) -> None:
    facts = json.loads(toy.dumps())
    for change in ({"source": SHARD}, {"settings": SHARD}, {"splits": SHARD}, {"rejected": SHARD}):
        with pytest.raises(DatasetError, match=r"manifest|version"):
            manifest.loads(json.dumps({**facts, **change}), where="it")


@pytest.fixture
def toy() -> manifest.Manifest:
    from test_manifest import MADE

    return dataclasses.replace(MADE)
