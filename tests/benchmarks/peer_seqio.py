"""A task of seqio, to be cached by `seqio_cache_tasks --module_import=peer_seqio`. Run by bench_peers in an environment of its own.

The environment variables SEQIO_TEXTS (a pattern of files of lines) and SEQIO_MODEL say what is prepared.
"""

import os

import seqio
import tensorflow as tf

VOCABULARY = seqio.SentencePieceVocabulary(os.environ["SEQIO_MODEL"], extra_ids=100)

seqio.TaskRegistry.add(
    "bench",
    source=seqio.TextLineDataSource({"train": os.environ["SEQIO_TEXTS"]}),
    preprocessors=[
        lambda lines: lines.map(lambda line: {"inputs": line, "targets": tf.constant("HQ")}),
        seqio.preprocessors.tokenize,
        seqio.preprocessors.append_eos,
        seqio.CacheDatasetPlaceholder(),
    ],
    output_features={name: seqio.Feature(VOCABULARY) for name in ("inputs", "targets")},
)
