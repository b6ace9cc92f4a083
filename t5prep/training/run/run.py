"""Write a run's directory, and open models from a run, from a Hugging Face directory or from the Hub.

RUN/train.json           every setting, resolved
RUN/config.json          the model's config, in Hugging Face's format
RUN/spiece.model         the tokenizer (an encoder's: tokenizer.json), so that `predict` needs no other files
RUN/manifest-0.json      the manifest of the dataset; one for each dataset of a mixture
RUN/task-0.py            a copy of the user's task that made dataset 0, if it is not a built-in task
RUN/filter-0-0.py        a copy of the first file that the filters of dataset 0 read
RUN/metrics.jsonl, RUN/tensorboard/, RUN/checkpoints/
"""

import contextlib
import dataclasses
import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import tensorflow as tf

from t5prep.dataset import manifest
from t5prep.dataset.manifest import Manifest
from t5prep.dataset.prepared import Dataset
from t5prep.dataset.settings import Settings
from t5prep.errors import OutputError, TokenizerError, UsageError
from t5prep.io import atomic_files, gcs, model_files, paths
from t5prep.io.model_files import ModelFiles
from t5prep.json_values import whole_number
from t5prep.tasks.targets import HiddenTokensTarget, Target, TextTarget
from t5prep.tokens import loading
from t5prep.tokens.encoder_tokenizer import EncoderTokenizer
from t5prep.tokens.tokenizer import EMBEDDING_MULTIPLE, Tokenizer
from t5prep.training.log import say
from t5prep.training.model import lora
from t5prep.training.model.architecture import (
    Config,
    EncoderConfig,
    ModelConfig,
    read_config,
    with_target,
)
from t5prep.training.model.weight_layout import weight_layouts
from t5prep.training.model.weights import for_classes, load_config, load_weights, random_weights
from t5prep.training.published import peft_file
from t5prep.training.published.stored import Array
from t5prep.training.run import adapters, checkpoint_tensors, checkpoints
from t5prep.training.run.adapters import Adapter
from t5prep.training.run.checkpoints import State, write_text
from t5prep.training.runtime import hosts
from t5prep.training.settings import train_config
from t5prep.training.settings.train_config import TINY_MODEL, TrainConfig

_MANIFEST = re.compile(r"manifest-\d+\.json")
# The settings for inputs of a model without a manifest.
UNKNOWN_DATA = Settings("", {}, input_length=512, target_length=128, truncation="head", marker="none")
# The maximum tokens of an input for a classifier without a manifest.
MOST_TOKENS = 512
SETTINGS, SHAPE = "train.json", "config.json"
TOKENIZERS = (Tokenizer.file_name, EncoderTokenizer.file_name)
_COPIES = ("manifest-", "task-", "filter-")  # prefixes of the files that a run copies from its datasets

# A small shape for the built-in sample: it trains from random weights on two CPU cores in minutes.
TINY = ModelConfig(
    d_model=64,
    d_kv=16,
    d_ff=128,
    num_layers=1,
    num_decoder_layers=1,
    num_heads=4,
    feed_forward_proj="gated-gelu",
    tie_word_embeddings=False,
    scale_decoder_outputs=False,
)


# The same for a dataset with classes.
TINY_ENCODER = EncoderConfig(d_model=64, d_ff=128, num_layers=4, num_heads=4, max_positions=512)


class TaskFile(NamedTuple):
    """A run's copy of a user's file of a task or filter: its path and bytes. It may be code, which has not been executed."""

    path: str
    code: bytes


@dataclasses.dataclass(frozen=True)
class Model:
    """An opened model: its config and weights, and, if known, its tokenizer, manifests and checkpoint."""

    name: str  # the checkpoint's path, the directory, or the Hub's name
    config: Config
    weights: dict[str, Array]  # perhaps `stored.LazyArray`s, which are read on access
    tokenizer: Tokenizer | None = None
    manifests: tuple[Manifest, ...] = ()
    state: State | None = None
    adapter: Adapter | None = None  # already merged into the weights
    own_tasks: Mapping[int, TaskFile] = dataclasses.field(default_factory=dict)  # by the index in `manifests`
    # By the index in `manifests`, then by the file's path in the manifest.
    filter_files: Mapping[int, Mapping[str, TaskFile]] = dataclasses.field(default_factory=dict)

    @property
    def settings(self) -> Settings:
        """Return the settings of the first training dataset; without a manifest, settings that suit any model."""
        return self.manifests[0].settings if self.manifests else settings_without_data(self.config)

    def copy_name(self, manifest: Manifest, file: str) -> str:
        """Return the name, in the folder of a run or an exported model, of the copy of a filter's `file`."""
        return _copy_name(self.manifests.index(manifest), manifest.filter_names[file])


def settings_without_data(config: Config) -> Settings:
    """Return the settings for inputs of a model without a manifest."""
    target = config.objective.target
    if target.has_tokens:
        return UNKNOWN_DATA
    length = MOST_TOKENS
    if isinstance(config, EncoderConfig):
        length = min(length, config.longest_input)
    return dataclasses.replace(
        UNKNOWN_DATA, target=target.name, input_length=length, target_length=target.length(length)
    )


def is_run(name: str) -> bool:
    """Check whether the path or gs:// prefix `name` holds a run of t5prep.

    Raises UsageError for a gs:// address without a bucket, and OutputError if the bucket cannot be reached.
    """
    if gcs.is_gs(name):
        gcs.split(name)
        gcs.check_tensorflow_reaches(name)
    return tf.io.gfile.exists(f"{name.rstrip('/')}/{SETTINGS}")


def files_of(name: str) -> ModelFiles | None:
    """Return the files of a model in Hugging Face layout; None for a run. Raises UsageError if `name` is neither."""
    return None if is_run(name) else model_files.find(name)


def check_begin(out: str) -> None:
    """Raise OutputError if the directory `out` for a new run holds files that are not a run's."""
    file_names = tf.io.gfile.listdir(out) if not is_run(out) and tf.io.gfile.isdir(out) else []
    ours = (SETTINGS, SHAPE, *TOKENIZERS, *_COPIES, "programs", atomic_files.UNFINISHED)
    strange = [name for name in file_names if not name.startswith(ours)]
    if strange:  # other files may stay: a run that was killed before its first checkpoint wrote them
        raise OutputError(
            f"{out} contains files that a run does not write ({strange[0]}). Choose another --out.",
            code="output.foreign-file",
        )


def begin(
    out: str,
    *,
    config: TrainConfig,
    shape: Config,
    tokenizer: Tokenizer,
    datasets: Sequence[Dataset],
    resumes: bool = False,
) -> None:
    """Write a run's files, unless the run `resumes` from a checkpoint. With several hosts, one writes and the others wait.

    Files of an earlier start without a checkpoint are replaced, because it may have had other data or another model. Raises
    OutputError if the directory holds other files, or cannot be written.
    """
    if hosts.writes() and not resumes:
        check_begin(out)
        try:
            tf.io.gfile.makedirs(out)
            for name in tf.io.gfile.listdir(out):
                if name in TOKENIZERS or name.startswith(_COPIES):
                    tf.io.gfile.remove(f"{out}/{name}")
            write_text(f"{out}/{SHAPE}", json.dumps(shape.to_json(), indent=2) + "\n")
            with tf.io.gfile.GFile(f"{out}/{tokenizer.file_name}", "wb") as file:
                file.write(tokenizer.model)
            _copy_code(out, datasets)
            for number, dataset in enumerate(datasets):
                write_text(f"{out}/manifest-{number}.json", dataset.manifest.dumps())
            write_text(f"{out}/{SETTINGS}", train_config.dumps(config))  # last, because this file marks a run
        except (OSError, tf.errors.OpError) as error:
            raise OutputError(
                f"The run {out} cannot be written ({error}). Choose another --out.", code="output.unwritable"
            ) from error
    hosts.wait(f"{out} begun")


def open_model(
    model: str | ModelFiles,
    *,
    checkpoint: str = "best",
    encoder: bool = False,
    target: Target | None = None,
    head_seed: int | None = None,
    say: Callable[[str], object] = say,
) -> Model:
    """Open a checkpoint of a run, or a model in Hugging Face layout. Raises UsageError, OutputError or TokenizerError.

    Args:
        model: The name of a run or model, or the model's files.
        checkpoint: "best", "last", or a step's number, of a run.
        encoder: A model in Hugging Face layout needs only the weights of its encoder.
        target: The target that the model will be trained for. If this or a manifest's target is hidden tokens, an encoder's
            head is the one that fills masks.
        head_seed: The seed of a missing head, see `load_weights`.
        say: Gets messages, see `load_weights`.
    """
    name = model if isinstance(model, str) else model.name
    files = files_of(model) if isinstance(model, str) else model
    if files:
        manifests = _manifests_of(files)
        copies = _copies(files.names, files.read, folder=name, manifests=manifests)
        if peft_file.CONFIG_NAME in files.names:
            base = open_model(peft_file.base_of(files))
            shape, matrices = peft_file.load(files, base.config)
            lora.merge_arrays(base.weights, matrices, scale=shape.lora_alpha / shape.lora_rank)
            adapter = Adapter(peft_file.base_of(files), shape, matrices)
            words = _tokenizer_in(files) or base.tokenizer
            return Model(name, base.config, base.weights, words, manifests, None, adapter, *copies)
        config, weights = load_weights(
            files,
            encoder=encoder,
            masked=HiddenTokensTarget() in (target, *(dataset.target for dataset in manifests)),
            for_classes=bool(target and target.classes),
            head_seed=head_seed,
            say=say,
        )
        return Model(name, config, weights, _tokenizer_in(files), manifests, None, None, *copies)
    path, state = checkpoints.choose(name, checkpoint=checkpoint)
    file = next((file for file in TOKENIZERS if tf.io.gfile.exists(f"{name}/{file}")), TOKENIZERS[0])
    vocabulary = f"{name}/{file}"
    tokenizer = loading.of_content(paths.read(vocabulary), name=vocabulary)
    manifests = manifests_of_run(name)
    folder = name.rstrip("/")
    copies = _copies(
        tf.io.gfile.listdir(name), lambda file: paths.read(f"{folder}/{file}"), folder=folder, manifests=manifests
    )
    config = read_config(paths.read(f"{name}/{SHAPE}"), location=f"{name}/{SHAPE}")
    if HiddenTokensTarget() in [dataset.target for dataset in manifests]:
        config = with_target(config, HiddenTokensTarget())
    if state.config.get("lora"):
        config, weights = _base_of(name, state, config)
        adapter = adapters.read(path, state, config, weights)
        return Model(path, config, weights, tokenizer, manifests, state, adapter, *copies)
    if isinstance(config, ModelConfig):
        # The config of a T5 1.1 does not show whether it has one or two matrices of embeddings. The tensors do, as in
        # `load_weights`.
        tied = not checkpoint_tensors.has_weight(path, "lm_head")
        config = dataclasses.replace(config, tie_word_embeddings=tied)
    checkpoint_weights: dict[str, Array] = {**checkpoint_tensors.read_weights(path, weight_layouts(config))}
    return Model(path, config, checkpoint_weights, tokenizer, manifests, state, None, *copies)


def _base_of(name: str, state: State, shape: Config) -> tuple[Config, dict[str, Array]]:
    """Return config and weights of the base of the adapters in the run `name`. Raises UsageError, OutputError."""
    config = train_config.build(state.config)
    try:
        return start_from(config, ids=shape.vocab_size, target=shape.objective.target, say=str)[:2]
    except UsageError as error:
        raise UsageError(
            f"{name} contains adapters and needs their base model {config.model}. {error}", code=error.code
        ) from error


def start_from(
    config: TrainConfig,
    *,
    ids: int,
    needed: int | None = None,
    target: Target = TextTarget(),  # noqa: B008 - frozen
    say: Callable[[str], object] = say,
) -> tuple[Config, dict[str, Array], Tokenizer | None]:
    """Return the model that a run starts from: its config, its weights, and its tokenizer or None. Raises UsageError.

    Args:
        config: The settings of the run.
        ids: The number of ids of the data's tokenizer. A model with random weights gets this many embeddings, rounded up to
            a multiple of 128.
        needed: The number of ids that may occur in the data; None for all. A trained model must have as many embeddings.
        target: The target of the data. With classes, a T5 is reduced to its encoder, and the head is drawn again if it has
            another number of classes.
        say: Gets messages, see `load_weights`.
    """
    if config.weights == "random":
        tiny = TINY if target.is_text else TINY_ENCODER
        shape: Config = tiny if config.model == TINY_MODEL else load_config(config.model)
        _check_target(config, shape, target)
        shape = dataclasses.replace(shape, vocab_size=-(-ids // EMBEDDING_MULTIPLE) * EMBEDDING_MULTIPLE)
        shape = with_target(shape, target)
        return shape, {**random_weights(shape, seed=config.seed)}, None
    if config.model == TINY_MODEL:
        raise UsageError(
            'The model "tiny" has no pretrained weights. Train it from random weights: --set weights=random',
            code="weights.unpublished",
        )
    model = open_model(config.model, target=target, head_seed=config.seed, say=say)
    if model.config.vocab_size < (needed or ids):
        if model.tokenizer and model.tokenizer.vocab_size <= model.config.vocab_size and ids <= model.tokenizer.size:
            raise UsageError(
                f"{config.model} has {model.config.vocab_size:,} embeddings and none for the sentinels in the "
                "data. Prepare the data with --marker none and without --keep-newlines. This model cannot "
                "learn to fill hidden spans.",
                code="model.missing-sentinels",
            )
        raise UsageError(
            f"{config.model} has {model.config.vocab_size:,} embeddings, but the data's tokenizer has "
            f"{ids:,} ids. Prepare the data with the model's tokenizer: t5prep prepare TASK --tokenizer "
            f"{config.model} ...",
            code="tokenizer.vocabulary-mismatch",
        )
    _check_target(config, model.config, target)
    if target.classes:
        class_model = for_classes(
            model.config, model.weights, target.classes, seed=config.seed, target=target.name, say=say
        )
        return *class_model, model.tokenizer
    return model.config, model.weights, model.tokenizer


def _check_target(settings: TrainConfig, config: Config, target: Target) -> None:
    """Raise UsageError if a classifier would learn texts, or a T5 an encoder's hidden tokens."""
    name = settings.model
    if target == HiddenTokensTarget() and not isinstance(config, EncoderConfig):
        raise UsageError(
            f"{name} is not an encoder, but the data has hidden tokens for an encoder. Choose an encoder, "
            "or prepare the task span_corruption.",
            code="dataset.target-mismatch",
        )
    if config.classes and target.is_text:
        raise UsageError(
            f"{name} is of type {config.model_type} and predicts classes, but the data has texts as "
            "targets. Prepare the data for this model: t5prep prepare TASK --target class --tokenizer "
            f"{name} ...",
            code="dataset.target-mismatch",
        )


def _tokenizer_in(files: ModelFiles) -> Tokenizer | None:
    """Return a model's own tokenizer; None if it has only weights. Callers that need a tokenizer raise the error."""
    try:
        return loading.load(files)
    except TokenizerError:
        return None


def _manifests_of(files: ModelFiles) -> tuple[Manifest, ...]:
    names = sorted((name for name in files.names if _MANIFEST.fullmatch(name)), key=_number_in)
    return tuple(manifest.loads(files.read(name), location=f"{files.name}/{name}") for name in names)


def manifests_of_run(folder: str) -> tuple[Manifest, ...]:
    """Return the run's copies of the manifests of its datasets. Raises DatasetError."""
    manifest_paths = sorted(tf.io.gfile.glob(f"{folder.rstrip('/')}/manifest-*.json"), key=_number_in)
    return tuple(manifest.loads(paths.read(path), location=path) for path in manifest_paths)


def _number_in(name: str) -> int:
    """Return the number in a manifest's file name. Sorting by it puts manifest-10 after manifest-2."""
    return whole_number(name.rpartition("-")[2].removesuffix(".json")) or 0


def _copy_code(out: str, datasets: Sequence[Dataset]) -> None:
    """Copy the users' files of tasks and filters from the datasets to the run. Raises DatasetError for an altered file."""
    for number, dataset in enumerate(datasets):
        task, path = dataset.manifest.task, dataset.path_of(manifest.TASK_FILE)
        if task.file and tf.io.gfile.exists(path):
            code = paths.read(path)
            task.check_code(code, path=path)
            write_text(f"{out}/task-{number}.py", code.decode())
        for file, name in dataset.manifest.filter_names.items():
            path = dataset.path_of(name)
            if tf.io.gfile.exists(path):
                content = paths.read(path)
                dataset.manifest.check_filter(content, file=file, path=path)
                with tf.io.gfile.GFile(f"{out}/{_copy_name(number, name)}", "wb") as copy:
                    copy.write(content)


def _copy_name(number: int, filter_name: str) -> str:
    """Return the name of the run's copy of a filter's file of dataset `number`.

    >>> _copy_name(2, "filter-0.py")
    'filter-2-0.py'
    """
    return filter_name.replace("-", f"-{number}-")


def copies_of(model: Model) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each file of a task or filter that a model carries."""
    for number, task in model.own_tasks.items():
        yield f"task-{number}.py", task.code
    for number, files in model.filter_files.items():
        for file, copy in files.items():
            yield model.copy_name(model.manifests[number], file), copy.code


def _copies(
    names: Collection[str], read: Callable[[str], bytes], *, folder: str, manifests: Sequence[Manifest]
) -> tuple[dict[int, TaskFile], dict[int, dict[str, TaskFile]]]:
    """Return the copies of tasks' files and of filters' files in a run or an exported model, by the index in `manifests`.

    names: the files in `folder`; read: returns the content of one.
    """
    file_names = set(names)
    tasks = {number: f"task-{number}.py" for number, dataset in enumerate(manifests) if dataset.task.file}
    filters = {
        number: {file: _copy_name(number, name) for file, name in dataset.filter_names.items()}
        for number, dataset in enumerate(manifests)
    }
    return (
        {number: TaskFile(f"{folder}/{name}", read(name)) for number, name in tasks.items() if name in file_names},
        {
            number: {
                file: TaskFile(f"{folder}/{name}", read(name)) for file, name in files.items() if name in file_names
            }
            for number, files in filters.items()
            if files
        },
    )


@contextlib.contextmanager
def lock_run(out: str) -> Iterator[None]:
    """Lock the directory of a run for this process during a `with`. Raises OutputError if another process has locked it.

    The directory is created if it is missing, and removed if it stays empty. Temporary files of a killed process are removed
    first. The system releases the lock when the process ends in any way. Directories on gs://, and on file systems without
    locks, are not locked; with several hosts only the one that writes locks.

    A run's checkpoints decide how it resumes, so it has no identity to compare when it is locked, unlike a dataset
    (`preparation.output_folder`), which training may not import.
    """
    if "://" in out or not hosts.writes():
        yield
        return
    missing = not os.path.exists(out)
    try:
        os.makedirs(out, exist_ok=True)
        handle = os.open(out, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise OutputError(
            f"The run {out} cannot be written ({error.strerror}). Choose another --out.", code="output.unwritable"
        ) from error
    try:
        busy = f"{out} is being written by another process. Wait until it ends, or choose another --out."
        atomic_files.lock(handle, busy=busy)
        atomic_files.remove_left(Path(out), SETTINGS, SHAPE, *TOKENIZERS, "manifest-*", "metrics.jsonl")
        yield
    finally:
        if missing:
            with contextlib.suppress(OSError):  # rmdir fails if the run has written files, as it should
                os.rmdir(out)
        os.close(handle)
