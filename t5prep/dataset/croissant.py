"""Describe a prepared dataset in Croissant 1.0, the format in which search engines and catalogues read about datasets."""

import re
from collections.abc import Iterator
from typing import Any

from t5prep.dataset import card
from t5prep.dataset.manifest import NAME as MANIFEST
from t5prep.dataset.manifest import Manifest, Shard
from t5prep.io import long_json

NAME = "croissant.json"
# The context of the specification (docs.mlcommons.org/croissant/docs/croissant-spec.html, appendix 1).
_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "dct": "http://purl.org/dc/terms/",
    "sc": "https://schema.org/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "equivalentProperty": "cr:equivalentProperty",
    "samplingRate": "cr:samplingRate",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    **{
        name: f"cr:{name}"
        for name in (
            *("citeAs", "column", "extract", "field", "fileProperty", "fileObject", "fileSet", "format", "includes"),
            *("isLiveDataset", "jsonPath", "key", "md5", "parentField", "path", "recordSet", "references", "regex"),
            *("repeated", "replace", "separator", "source", "subField", "transform"),
        )
    },
}


def pieces(manifest: Manifest) -> Iterator[bytes]:
    """Yield the metadata as JSON-LD, in pieces: each shard with its checksum, and each split with its number of records."""
    rows = card.place_of(manifest)
    facts: dict[str, Any] = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": re.sub(r"[^A-Za-z0-9_-]", "_", f"{manifest.settings.task}-{manifest.digest[:12]}"),
        "description": f"TFRecord shards of token ids for a T5, made by t5prep from {rows}. {MANIFEST} describes the records.",
        "license": manifest.source.licence or "unknown",
        "citeAs": manifest.source.citation,
        "version": "1.0.0",
        "keywords": ["t5", "tfrecord", manifest.settings.task],
        "isBasedOn": [{"@type": "sc:CreativeWork", "name": rows, "version": manifest.source.revision}],
        "distribution": [shard for split in manifest.splits.values() for shard in split.shards],
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": "splits",
                "name": "splits",
                "dataType": "cr:Split",
                "key": {"@id": "splits/name"},
                "field": [_field("splits/name", "sc:Text"), _field("splits/records", "sc:Integer")],
                "data": [
                    {"splits/name": name, "splits/records": split.records} for name, split in manifest.splits.items()
                ],
            }
        ],
    }
    yield from long_json.pieces(facts, fields=_file, indent=2, ensure_ascii=False)
    yield b"\n"


def _file(shard: Shard) -> dict[str, str]:
    """Return what is said of one shard."""
    return {
        "@type": "cr:FileObject",
        "@id": shard.name,
        "name": shard.name,
        "contentUrl": shard.name,
        "contentSize": f"{shard.bytes} B",
        "encodingFormat": "application/x-tfrecord",
        "sha256": shard.sha256,
    }


def _field(name: str, kind: str) -> dict[str, str]:
    return {"@type": "cr:Field", "@id": name, "name": name, "dataType": kind}
