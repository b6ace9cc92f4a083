"""Embed all texts of a source, in order, into files with a fixed number of rows each: the code of `t5prep.embed`.

A file depends only on its own rows and on the options. A run that was killed and resumed therefore writes the same files.
"""

import collections
import contextlib
import dataclasses
import functools
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import jax
import numpy as np

from t5prep import sources
from t5prep.dataset import conversion
from t5prep.errors import Reject, UsageError
from t5prep.io import atomic_files, gcs, signals
from t5prep.json_values import JSON, JSONObject
from t5prep.options.models import EmbedOptions, VectorOptions
from t5prep.reading import columns
from t5prep.sources import Resolved
from t5prep.tokens import loading
from t5prep.training.embed import sentence_recipe
from t5prep.training.embed.sentence_recipe import SentenceRecipe
from t5prep.training.embed.vector_files import Entry, Folder, name_of
from t5prep.training.embed.vectors import Encoder
from t5prep.training.log import say
from t5prep.training.model.architecture import EncoderConfig
from t5prep.training.model.weight_layout import of_encoder
from t5prep.training.model.weights import fingerprint
from t5prep.training.predict import prediction_inputs
from t5prep.training.predict.prediction_inputs import Question, Rows
from t5prep.training.predict.predictor import WINDOW, bucket
from t5prep.training.published.safetensors_file import BYTES
from t5prep.training.published.stored import DTYPES
from t5prep.training.run import run
from t5prep.training.runtime import hosts
from t5prep.version import __version__

# Rows of a file of vectors of tokens, and of a file with one vector for each text.
ROWS, ROWS_OF_TEXTS = 1024, 16384
# The maximum bytes of vectors that are computed before they are written. One batch is computed even if it is larger.
_WINDOW_BYTES = 256 << 20
_DTYPES = {"bfloat16": "BF16", "float32": "F32"}  # by their names in safetensors
Watch = Callable[[int, int], None]


@dataclasses.dataclass(frozen=True)
class Embedded:
    """The result of `t5prep.embed`: the folder `out` and the numbers of its rows, texts, tokens and files.

    `cut` counts the texts that were longer than the maximum length, `missing` the rows without a text, by reason. `kept`
    counts the files that existed before and were not computed again.
    """

    out: str
    rows: int
    texts: int
    tokens: int
    cut: int
    width: int
    files: int
    kept: int
    missing: dict[str, int]


@dataclasses.dataclass(frozen=True)
class _Text:
    """One tokenized row: its ids, int32[length], or the reason why it has none. `cut`: whether its text was too long."""

    id: str
    ids: np.ndarray | None
    reason: str = ""
    cut: bool = False


# A batch on the devices: the indices of its texts, their lengths, and the pending array of their vectors.
_PendingBatch = tuple[list[int], list[int], "jax.Array"]


class Embedding:
    """Embed the texts of `source` with `model`. Raises T5prepError.

    The constructor opens the model. The devices are opened only when a file must be computed, so that a call whose files
    all exist is quick.
    """

    def __init__(
        self,
        model: str,
        source: str | Resolved,
        options: EmbedOptions,
    ) -> None:
        self._has_address = isinstance(source, str)  # rows in memory have none
        source = sources.resolve(source) if isinstance(source, str) else source
        files = run.files_of(model)
        recipe = sentence_recipe.read(files) if files else None
        output, self._recipe = _choose_pooling(model, recipe, options.vectors)
        opened = run.open_model(files or model, checkpoint=options.model.checkpoint, encoder=True)
        manifest = prediction_inputs.choose(opened.manifests, name=options.rows.task)
        column = options.column or ("" if manifest else prediction_inputs.INPUT)
        question_builder = prediction_inputs.question_builder_of(opened, manifest, options.rows, column=column)
        make = question_builder.to_inputs
        if chosen_recipe := self._recipe:
            question_builder = dataclasses.replace(
                question_builder, to_inputs=lambda record: chosen_recipe.prepare(make(record))
            )
        self.rows = Rows(
            source,
            question_builder,
            options=options.rows,
            trained=manifest.settings if manifest else None,
            option="--column NAME",
        )
        self.source = self.rows.source
        if self.rows.note:
            say(self.rows.note)
        self._filters = manifest.settings.filter if manifest else ()
        self._opened, self._options = opened, options
        tokenizer = options.model.tokenizer
        self._words = opened.tokenizer if opened.tokenizer and not tokenizer else loading.load(tokenizer or opened.name)
        if self._words.vocab_size > opened.config.vocab_size:  # a device would take another token's embedding for one
            raise UsageError(
                f"{opened.name} has {opened.config.vocab_size:,} embeddings, but the tokenizer has "
                f"{self._words.vocab_size:,} ids. Use the model's own tokenizer: --tokenizer NAME",
                code="tokenizer.vocabulary-mismatch",
            )
        chosen = manifest.settings if manifest else run.settings_without_data(opened.config)
        longest = (recipe.length if recipe else 0) or chosen.input_length
        if isinstance(opened.config, EncoderConfig):
            longest = min(longest, opened.config.longest_input)
        self.length = options.length or longest
        chosen = dataclasses.replace(chosen, input_length=self.length)
        self._featurize = conversion.featurizer_of(chosen, self._words, classes=opened.config.classes)
        self.output = output
        self.width = self._recipe.width(opened.config.d_model) if self._recipe else opened.config.d_model
        self.rows_of_file = options.shard_rows or (ROWS if output.pooling == "none" else ROWS_OF_TEXTS)

    @functools.cached_property
    def _encoder(self) -> Encoder:
        """Return the encoder that makes the vectors, compiled when it is first used."""
        output = self.output
        # The recipe's Dense layers need float32, and normalize their result.
        if self._recipe and self._recipe.has_matrices:
            output = dataclasses.replace(output, dtype="float32", normalize=False)
        return Encoder(self._opened, output, self._options, tokenizer=self._words)

    def write(self, out: str, *, watch: Watch | None = None) -> Embedded:
        """Write all files of vectors that do not exist yet, and the manifest.

        `watch` is called for each file with the numbers of its rows and of their characters. Raises OutputError.
        """
        hosts.check_places(out)
        with contextlib.ExitStack() as stack:
            if hosts.given_processes() > 1 or self._options.model.tpu:
                _ = self._encoder  # joins the other hosts, of which one writes
                stack.enter_context(hosts.end_all_on_failure())
            rows = itertools.islice(iter(self.rows), self._options.rows.limit)
            first = list(itertools.islice(rows, self.rows_of_file))
            texts = []
            # The whole source fits into the first file: check that it has texts before the folder is created.
            if len(first) < self.rows_of_file:
                texts = self._ask(first)
                self._check_texts(texts)
            questions = itertools.chain(first, rows)
            stack.enter_context(run.lock_run(out))
            if not gcs.is_gs(out) and hosts.writes():
                atomic_files.remove_left(Path(out), "vectors-*", "manifest.json", f"{atomic_files.UNFINISHED}*")
            folder = Folder(out, identity=self.identity(), writes=hosts.writes())
            shards: list[Entry] = []
            existing_files = 0
            for number in itertools.count():
                chunk = list(itertools.islice(questions, self.rows_of_file))
                if not chunk:
                    break
                existing_entry = folder.finished(name_of(number))
                existing_files += existing_entry is not None
                shards.append(existing_entry or self._write_one(folder, name_of(number), texts or self._ask(chunk)))
                if watch:
                    watch(len(chunk), sum(len(entry.text) for entry in chunk))
            missing: collections.Counter[str] = collections.Counter()
            for entry in shards:
                missing.update(entry["missing"])
            totals = {
                "rows": sum(entry["rows"] for entry in shards),
                "texts": sum(entry["texts"] for entry in shards),
                "tokens": sum(entry["tokens"] for entry in shards),
                "cut": sum(entry["cut"] for entry in shards),
            }
            names = {"model_name": self._opened.name, "tokenizer_name": self._words.name}
            folder.finish(shards, created_by=f"t5prep {__version__}", **names, **totals, missing=dict(missing))
        return Embedded(out, **totals, width=self.width, files=len(shards), kept=existing_files, missing=dict(missing))

    def _check_texts(self, texts: Sequence[_Text]) -> None:
        """Raise SourceError if none of `texts`, which are all rows of the source, has a text."""
        if any(text.ids is not None for text in texts):
            return
        reasons = collections.Counter(text.reason for text in texts)
        raise columns.without_texts(self.source, len(texts), reasons=reasons)

    def _write_one(self, folder: Folder, name: str, texts: Sequence[_Text]) -> Entry:
        """Compute the vectors of `texts`, write them to the file `name`, and return its entry."""
        texts_with_ids = [text for text in texts if text.ids is not None]
        lengths = np.array([len(text.ids) for text in texts_with_ids if text.ids is not None], np.int64)
        tokens, count, dtype = int(lengths.sum()), len(texts_with_ids), _DTYPES[self.output.dtype]
        vectors = itertools.chain.from_iterable(
            self._windows([text.ids for text in texts_with_ids if text.ids is not None])
        )
        values: Iterator[np.ndarray]
        tensors: dict[str, tuple[str, tuple[int, ...]]]
        if self.output.pooling != "none":
            tensors, values = {"vectors": (dtype, (count, self.width))}, vectors
        elif self.output.padded:
            mask = (np.arange(self.length) < lengths[:, None]).astype(np.uint8)
            tensors = {"vectors": (dtype, (count, self.length, self.width)), "mask": ("U8", mask.shape)}
            values = itertools.chain(vectors, [mask])
        else:
            starts = np.concatenate([[0], np.cumsum(lengths)])
            tensors = {"starts": ("I64", starts.shape), "vectors": (dtype, (tokens, self.width))}
            values = itertools.chain([starts], vectors)
        missing = [(text.id, text.reason) for text in texts if text.ids is None]
        reasons = collections.Counter(reason.partition(":")[0] for _, reason in missing)
        metadata = {"ids": _dumped([text.id for text in texts_with_ids]), "missing": _dumped(missing)}
        summary: Entry = {
            "name": name,
            "rows": len(texts),
            "texts": count,
            "tokens": tokens,
            "cut": sum(text.cut for text in texts_with_ids),
            "missing": dict(reasons),
        }
        return folder.write(summary, tensors=tensors, metadata=metadata, values=values)

    def _ask(self, questions: Sequence[Question]) -> list[_Text]:
        """Return the tokenized texts of `questions`. A blank text has only the tokens around each text, such as [CLS] [SEP]."""
        encoded = iter(self._featurize.inputs_of([question.example for question in questions if question.example]))
        texts = []
        for question in questions:
            features = next(encoded) if question.example else Reject(question.reason)
            if not isinstance(features, Reject):
                texts.append(_Text(question.id, features.ids, cut=features.tokens > self.length))
            elif question.example and not question.text.strip():
                frame = self._words.frame
                texts.append(_Text(question.id, np.array([*frame.first, *frame.last], np.int32)))
            else:
                texts.append(_Text(question.id, None, str(features)))
        return texts

    def _windows(self, inputs: Sequence[np.ndarray]) -> Iterator[list[np.ndarray]]:
        """Yield the vectors of `inputs` in order, a list of them at a time.

        The devices start on the next texts before the host waits for the previous ones.
        """
        row = self.width * BYTES[_DTYPES[self.output.dtype]]
        row *= self.length if self.output.pooling == "none" else 1
        batches = max(1, min(WINDOW, _WINDOW_BYTES // (row * self._options.batch)))
        previous_batches = None
        for first in range(0, len(inputs), batches * self._encoder.rows):
            signals.check()
            pending_batches = self._begin(inputs[first : first + batches * self._encoder.rows])
            if previous_batches:
                yield self._end(previous_batches)
            previous_batches = pending_batches
        if previous_batches:
            yield self._end(previous_batches)

    def _begin(self, inputs: Sequence[np.ndarray]) -> list[_PendingBatch]:
        """Start the computation for `inputs` on the devices and return its batches, the longest texts first.

        Batches of similar lengths need less padding.
        """
        order = sorted(range(len(inputs)), key=lambda index: len(inputs[index]), reverse=True)
        pending_batches = []
        for first in range(0, len(order), self._encoder.rows):
            indices = order[first : first + self._encoder.rows]
            batch = [inputs[index] for index in indices]
            length = self.length if self.output.padded else bucket(len(batch[0]), limit=self.length)
            pending_batches.append((indices, [len(ids) for ids in batch], self._encoder.begin(batch, length)))
        return pending_batches

    def _end(self, pending_batches: Sequence[_PendingBatch]) -> list[np.ndarray]:
        """Wait for the batches and return the vectors of each text, in the order of the inputs.

        A text has [length, width], padded if the options say so, or [width] if pooled.
        """
        vectors_by_index: dict[int, np.ndarray] = {}
        for places, lengths, work in pending_batches:
            vectors = self._encoder.vectors_of(work)
            if self._recipe and self._recipe.has_matrices:
                vectors = self._recipe.finish(vectors).astype(DTYPES[self.output.dtype])
            for index, length, vector in zip(places, lengths, vectors, strict=False):
                vectors_by_index[index] = (
                    vector[:length] if self.output.pooling == "none" and not self.output.padded else vector
                )
        return [vectors_by_index[index] for index in range(len(vectors_by_index))]

    def identity(self) -> JSONObject:
        """Return everything that the bytes of the files depend on, as JSON. A run resumes only if it is unchanged."""
        opened, words = self._opened, self._words
        files = [[file.name, file.bytes, sources.sha256(file)] for file in self.source.files]
        return {
            "model": {
                "type": opened.config.model_type,
                "weights": fingerprint(opened.config, opened.weights, of_encoder(opened.config)),
            },
            "tokenizer": words.sha256,
            "filters": list(self._filters),
            "source": {
                "uri": self.source.uri if self._has_address else "",
                "revision": self.source.revision,
                "files": files,
                "column": self._options.column,
                "reading": self._options.rows.identity(),
            },
            **dataclasses.asdict(self.output),
            "recipe": self._recipe.identity() if self._recipe else None,
            "width": self.width,
            "length": self.length,
            "batch": self._options.batch,
            "shard_rows": self.rows_of_file,
        }


def _choose_pooling(
    model: str, recipe: SentenceRecipe | None, output: VectorOptions
) -> tuple[VectorOptions, SentenceRecipe | None]:
    """Return the options with "auto" pooling resolved, and the recipe if it applies, else None.

    The recipe of `model` applies to "auto" pooling without padding. If another pooling was chosen, a line says which steps
    are skipped. Raises UsageError for a recipe with unsupported steps.
    """
    if output.pooling == "auto" and (recipe is None or output.padded):
        output = dataclasses.replace(output, pooling="none")
    if recipe is None:
        return output, None
    if output.pooling == "auto":
        if recipe.unsupported_steps or not recipe.pooling:
            raise UsageError(
                f"{model} computes its vectors by {recipe.words()}, which t5prep supports only in part. "
                "Choose a pooling: --pooling mean (or first, none)",
                code="model.unsupported-pooling",
            )
        normalizes = None in recipe.after_pooling  # None stands for the step Normalize
        return dataclasses.replace(output, pooling=recipe.pooling, normalize=normalizes), recipe
    say(
        f"The model {model} has its own recipe: {recipe.words()}. --pooling replaces it, so the vectors differ. "
        "To apply the recipe, remove --pooling."
    )
    return output, None


def _dumped(value: JSON) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
