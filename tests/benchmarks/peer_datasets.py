"""The usual way to prepare: Hugging Face datasets, a fast tokenizer, TensorFlow's own Examples.

    python peer_datasets.py questions.csv tokenizer.json

Run by bench_prepare where `datasets` is installed. Head and tail are cut by hand, because no tokenizer does it.
"""

import os
import sys
import tempfile

import datasets
import tensorflow as tf
import tokenizers


def main(corpus: str, model: str) -> None:
    tokenizer = tokenizers.Tokenizer.from_file(model)
    with tempfile.TemporaryDirectory() as folder:
        rows = datasets.load_dataset("csv", data_files=corpus, split="train", cache_dir=folder)

        def features(batch: dict) -> dict:
            texts = [
                f"quality: {title or ''} {body or ''}"
                for title, body in zip(batch["Title"], batch["Body"], strict=True)
            ]
            found = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
            cut = [ids if len(ids) <= 512 else [*ids[:255], 32098, *ids[-256:]] for ids in found]
            return {"input_ids": [ids + [0] * (512 - len(ids)) for ids in cut], "labels": [[306, 1]] * len(cut)}

        made = rows.map(features, batched=True, num_proc=os.cpu_count(), remove_columns=rows.column_names)
        with tf.io.TFRecordWriter(os.path.join(folder, "train.tfrecord")) as writer:
            for row in made:
                feature = {
                    name: tf.train.Feature(int64_list=tf.train.Int64List(value=values)) for name, values in row.items()
                }
                writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())


if __name__ == "__main__":
    main(*sys.argv[1:])
