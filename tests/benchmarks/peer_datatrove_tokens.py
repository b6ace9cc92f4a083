"""datatrove's DocumentTokenizer with two workers. Run by bench_peers in an environment of its own.

python peer_datatrove_tokens.py FOLDER_OF_JSONL tokenizer.json OUT
"""

import sys

from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.tokens import DocumentTokenizer


def main(corpus: str, model: str, out: str) -> None:
    """Tokenize and shuffle the documents of each file; two files at a time."""
    tokenize = DocumentTokenizer(f"{out}/tokens", model, eos_token="</s>", local_working_dir=f"{out}/work", seed=0)
    LocalPipelineExecutor([JsonlReader(corpus), tokenize], tasks=2, workers=2, logging_dir=f"{out}/logs").run()


if __name__ == "__main__":
    main(*sys.argv[1:])
