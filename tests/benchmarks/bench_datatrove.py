"""Near-duplicates and Gopher's filters beside datatrove's: CPU time, memory, and how far both drop the same rows.

PYTHONPATH=. python tests/benchmarks/bench_datatrove.py CORPUS.jsonl PYTHON_WITH_DATATROVE [ROWS]
Each line of the corpus is {"id", "text"}. Ours is what `prepare` takes with the option beyond what it takes without, on one worker.
"""

import collections
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from t5prep.prepare.near_duplicates import jaccard
from t5prep.prepare.near_duplicates.shingles import shingles
from tests.benchmarks import processor_time

PEER = Path(__file__).with_name("peer_datatrove.py")
GOPHER = ("--filter", "gopher", "--filter", "gopher_repetition")
RAW = """
import json, sys
from t5prep.sources import sample
import sentencepiece
model = sentencepiece.SentencePieceProcessor(model_proto=sample.tokenizer_path().read_bytes())
with open(sys.argv[1], encoding="utf-8") as file:
    for line in file:
        model.encode(json.loads(line)["text"])
"""


def measured(command: list[str]) -> tuple[float, float]:
    """Run a command; return its CPU seconds with those of all below it, and the most MB that its first process had."""
    processor_time.adopt_orphans()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    said = process.stderr.read() if process.stderr else b""
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{command}: {said.decode()[-2000:]}")
    return processor_time.of_usage(usage) + processor_time.of_orphans(), usage.ru_maxrss / 1024


def ours(corpus: Path, out: Path, *more: str) -> tuple[float, float]:
    """Prepare the corpus."""
    line = ["-m", "t5prep.cli", "prepare", "text2text", "--source", str(corpus), "--tokenizer", "sample:", "--fresh"]
    line += ["--inputs-column", "text", "--targets-column", "label", "--id-column", "id", "--out", str(out)]
    return measured([sys.executable, *line, "--workers", "1", *more])


def rejected(out: Path) -> dict[str, str]:
    """Return the reason of each rejected row by its id."""
    lines = map(json.loads, (out / "rejected.jsonl").read_text().splitlines())
    return {line["id"]: line["reason"] for line in lines}


def compare_clusters(texts: dict[str, str], dropped: dict[str, str], theirs: dict) -> None:
    """Print how many of our pairs are in one cluster of theirs, and theirs in one of ours, with their similarity."""
    kept = {id: reason.rpartition(", id ")[2].partition(" (")[0] for id, reason in dropped.items()}
    groups = collections.defaultdict(list)
    for id, cluster in theirs["clusters"].items():
        groups[cluster].append(id)
    their_pairs = [(own[0], id) for cluster, own in groups.items() if cluster != -1 for id in own[1:]]
    our_pairs = [(id, kept[id]) for id in dropped]
    root = lambda id: kept.get(id, id)  # noqa: E731
    cluster = lambda id: theirs["clusters"].get(id, -1)  # noqa: E731
    both = sum(cluster(a) == cluster(b) != -1 for a, b in our_pairs)
    again = [root(a) == root(b) for a, b in their_pairs]
    print(f"ours dropped {len(our_pairs):,} rows, datatrove {len(theirs['dropped']):,}")
    print(f"of ours {both / max(1, len(our_pairs)):.1%} are in one cluster of datatrove's with the row that was kept")
    print(f"of datatrove's {sum(again) / max(1, len(again)):.1%} are in one cluster of ours")
    numbers = {id: number for number, id in enumerate(texts)}
    sets = jaccard.sets(shingles(list(texts.values()), words=5))
    other = [(a, b) for (a, b), same in zip(their_pairs, again, strict=True) if not same]
    alone = [(a, b) for a, b in our_pairs if not cluster(a) == cluster(b) != -1]
    for name, pairs in (("ours alone", alone), ("datatrove's alone", other)):
        if pairs:
            alike = jaccard.similarity(sets, np.array([(numbers[a], numbers[b]) for a, b in pairs]))
            print(
                f"{name}: {len(pairs):,}, {np.mean(alike >= 0.8):.1%} at least 0.8 alike, median {np.median(alike):.2f}"
            )


def main(source: Path, peer: str, rows: int) -> None:
    """Print the table and the agreement."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "corpus").mkdir()
        corpus = folder / "corpus" / "corpus.jsonl"
        with open(source, encoding="utf-8") as file, open(corpus, "w", encoding="utf-8") as out:
            for line in list(file)[:rows]:
                facts = json.loads(line)
                out.write(
                    json.dumps({"id": str(facts["id"]), "text": facts["text"], "label": "x"}, ensure_ascii=False) + "\n"
                )
        with open(corpus, encoding="utf-8") as file:
            texts = {one["id"]: one["text"] for one in map(json.loads, file)}
        print(f"{len(texts):,} texts, {corpus.stat().st_size / 1e6:.1f} MB", flush=True)
        raw, _ = measured([sys.executable, "-c", RAW, str(corpus)])
        none = ours(corpus, folder / "none")
        near = ours(corpus, folder / "near", "--dedup", "near")
        gopher = ours(corpus, folder / "gopher", *GOPHER)
        print(f"raw SentencePiece {raw:.1f} s of CPU; prepare {none[0]:.1f} s, {none[1]:,.0f} MB", flush=True)
        for step, (seconds, memory) in (("near", near), ("gopher", gopher)):
            print(f"ours      {step:7} {seconds - none[0]:6.1f} s more, {memory:,.0f} MB", flush=True)
        for step in ("near", "gopher"):
            seconds, memory = measured([peer, str(PEER), step, str(corpus), str(folder / f"theirs-{step}")])
            print(f"datatrove {step:7} {seconds:6.1f} s, {memory:,.0f} MB", flush=True)
        compare_clusters(
            texts, rejected(folder / "near"), json.loads((folder / "theirs-near/clusters.json").read_text())
        )
        theirs = json.loads((folder / "theirs-gopher" / "rejected.json").read_text())
        own = rejected(folder / "gopher")
        both = len(own.keys() & theirs.keys())
        print(f"Gopher: ours {len(own):,}, datatrove {len(theirs):,}, both {both:,}, of {len(texts):,}")
        for name, one, other in (("ours alone", own, theirs), ("datatrove's alone", theirs, own)):
            reasons = collections.Counter(one[id].partition(":")[0] for id in one.keys() - other.keys())
            print(f"  {name}: {dict(reasons.most_common(6))}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 1 << 60)
