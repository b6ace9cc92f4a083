"""Start and stop Beam's engines (Prism, Flink, Dataflow), list what they need on this machine, and explain their errors.

No function imports Beam before an engine is requested, because that import takes longer than a small preparation.
"""

import atexit
import contextlib
import dataclasses
import importlib.util
import logging
import os
import re
import shlex
import shutil
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pipelines.run_options import RUNNERS
from t5prep import errors
from t5prep.errors import OutputError, T5prepError, UsageError, did_you_mean
from t5prep.io import atomic_files, gcs, store
from t5prep.io.installation import install_command
from t5prep.version import __version__

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.runners.portability.job_server import JobServer
    from apache_beam.runners.runner import PipelineRunner

BEAM = "2.77.0"
FLINK = "1.19"
# Only a clone of the repository has this script. In an installed package, Beam downloads its own release of Flink's
# job server.
_SCRIPT = Path(__file__).parents[1] / ".ci" / "engines"
_JAVA = "sudo apt-get install -y default-jre-headless   (or any Java 11 or 17: https://adoptium.net)"


class MissingDependency(NamedTuple):
    """A program or package that an engine needs and this machine lacks.

    `name` is its name, `engine` the `--runner` that needs it, and `command` the shell command that installs it.
    """

    name: str
    engine: str
    command: str


def folder() -> Path:
    """Return the folder where `.ci/engines` installs engines: $T5PREP_ENGINES, or `engines` in t5prep's cache folder."""
    return Path(os.environ.get("T5PREP_ENGINES") or store.root() / "engines")


def prism() -> Path | None:
    """Return the path of the installed Prism binary, or None. Without it, Beam downloads its own release."""
    path = folder() / "bin" / "prism"
    return path if path.exists() else None


def flink_job_server() -> Path | None:
    """Return the path of the installed job server of Flink, or None. Without it, Beam downloads its own release."""
    path = folder() / "flink" / "job-server.jar"
    return path if path.exists() else None


def require(name: str, *, arguments: Sequence[str] = (), out: str = "") -> None:
    """Check that the engine `name` exists and can run on this machine with these options of Beam. Raises UsageError.

    `arguments` are Beam's own options. `out` is the dataset's folder: Dataflow requires one on gs://.
    """
    if name not in RUNNERS:
        raise UsageError(
            f'--runner does not accept "{name}".{did_you_mean(name, RUNNERS)} Choose one of: {", ".join(RUNNERS)}.',
            code="option.unknown-choice",
        )
    if name == "local" and arguments:
        raise UsageError(
            f"--runner local does not accept {arguments[0]}, because options after -- are for Beam's "
            "runners. Use --workers, or choose another --runner.",
            code="option.inapplicable",
        )
    if name == "flink" and not shutil.which("java"):
        raise UsageError(
            f"--runner flink needs Java, which is not on PATH. Install it: {_JAVA}", code="install.missing-program"
        )
    if name == "dataflow" and not _installed("google.cloud.dataflow"):
        raise UsageError(
            "--runner dataflow needs the Dataflow client, which is not installed. Install it: "
            f"{install_command('dataflow')}",
            code="install.extra-missing",
        )
    if name == "dataflow" and not gcs.is_gs(out):
        raise UsageError(
            f"--runner dataflow cannot write to {out}, which is on this machine. Use --out gs://BUCKET/NAME",
            code="bucket.local-path",
        )


def _installed(module: str) -> bool:
    """Check whether a module can be imported, without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    # A parent package of the module is missing. `find_spec` imports the parents to search them.
    except ModuleNotFoundError:
        return False


def missing() -> list[MissingDependency]:
    """Return the programs and packages that engines lack on this machine. The list is empty if every engine can run."""
    lacks = []
    if not prism():
        command = f"GOBIN={folder()}/bin go install github.com/apache/beam/sdks/v2/go/cmd/prism@v{BEAM}"
        go = "" if shutil.which("go") else "sudo apt-get install -y golang-go && "
        lacks.append(MissingDependency("Prism", "prism", go + command))
    if not shutil.which("java"):
        lacks.append(MissingDependency("Java", "flink", _JAVA))
    if not flink_job_server() and _SCRIPT.exists():
        lacks.append(MissingDependency("Flink's job server", "flink", f"bash {_SCRIPT}"))
    if not _installed("google.cloud.dataflow"):
        lacks.append(MissingDependency("the Dataflow client", "dataflow", install_command("dataflow")))
    return lacks


# Everything runs on this machine, without Docker or a cluster. LOOPBACK runs Prism's workers as threads of this
# process. "[auto]" starts Flink inside its job server, and its workers are processes of this Python.
_PRISM = ["--environment_type=LOOPBACK", "--prism_log_level=error"]
_FLINK = [
    f"--flink_version={FLINK}",
    "--flink_master=[auto]",
    "--experiments=use_loopback_process_worker",
    "--environment_cache_millis=60000",  # otherwise each stage starts a new Python process
]
# Workers import t5prep by name, so no definition of `__main__` has to be pickled and sent to them.
_DATAFLOW = ["--no_save_main_session", "--job_name=t5prep-prepare"]


@dataclasses.dataclass(frozen=True)
class Engine:
    """A Beam runner with its options. Its workers share neither memory nor disk with this process."""

    name: str
    runner: "PipelineRunner"
    options: "PipelineOptions"


def engine(name: str, *, arguments: Sequence[str] = (), workers: int | None = None) -> Engine:
    """Return the engine of a `--runner`. `arguments` are Beam's own options, which override t5prep's. Raises UsageError.

    `workers` is the number of workers, for Flink and Dataflow. None leaves it to the engine.
    """
    # Beam logs a traceback of each error before it raises the same error. `explained` reports the raised one.
    for logger in ("apache_beam", "root", "PrismRunner", "FlinkJarJobServer", "PrismJobServer", "SdkWorker"):
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    return {"prism": _prism, "flink": _flink, "dataflow": _dataflow}[name](list(arguments), workers)


@contextlib.contextmanager
def running(engine: Engine) -> Iterator[None]:
    """Run the body's pipeline. Then stop the servers that the engine started on this machine, and restore the environment.

    Prism's server is not stopped: it is one small process, which later runs of this process reuse, and it ends with
    this process.
    """
    if engine.name != "flink":
        yield
        return
    # Beam starts workers by the command `python`, which need not be this interpreter if its environment is not
    # activated.
    with started_quietly(), servers_ended(engine.runner):
        yield


def _prism(arguments: list[str], workers: int | None) -> Engine:
    """Return the engine of Beam's portable runner Prism. `workers` is not used: Prism chooses their number."""
    from apache_beam.runners.portability.prism_runner import PrismRunner

    ignore_closed_connections()
    server_options = [f"--prism_location={prism()}"] if prism() else []
    return Engine("prism", PrismRunner(), _options([*_PRISM, *server_options, *arguments]))


def _flink(arguments: list[str], workers: int | None) -> Engine:
    from apache_beam.runners.portability.flink_runner import FlinkRunner

    ignore_closed_connections()
    jar = flink_job_server()
    server_options = [f"--flink_job_server_jar={jar}"] if jar else []
    parallel = [f"--parallelism={workers}", f"--sdk_worker_parallelism={workers}"] if workers else []
    return Engine("flink", FlinkRunner(), _options([*_FLINK, *server_options, *parallel, *arguments]))


def _dataflow(arguments: list[str], workers: int | None) -> Engine:
    from apache_beam.options.pipeline_options import GoogleCloudOptions
    from apache_beam.runners.dataflow.dataflow_runner import DataflowRunner

    own_image = any(argument.startswith("--sdk_container_image") for argument in arguments)  # it has t5prep installed
    worker_options = [f"--max_num_workers={workers}"] if workers else []
    options = _options([*([] if own_image else _package()), *_DATAFLOW, *worker_options, *arguments])
    cloud = options.view_as(GoogleCloudOptions)
    for name in ("project", "region", "temp_location"):
        if not getattr(cloud, name):
            raise UsageError(
                f"--runner dataflow needs --{name}. Add it after the other options: -- --project=MINE "
                "--region=us-central1 --temp_location=gs://BUCKET/tmp",
                code="option.missing",
            )
    return Engine("dataflow", DataflowRunner(), options)


def _package() -> list[str]:
    """Return the options that install t5prep on workers: from the clone's setup.py, or the released package of this version."""
    setup = Path(__file__).parents[1] / "setup.py"
    if setup.exists():
        return [f"--setup_file={setup}"]
    until_exit = contextlib.ExitStack()
    folder = until_exit.enter_context(atomic_files.temporary_folder())
    atexit.register(until_exit.close)
    requirements_path = Path(folder) / "requirements.txt"
    requirements_path.write_text(f"t5prep=={__version__}\n")
    return [f"--requirements_file={requirements_path}"]


def _options(arguments: Sequence[str]) -> "PipelineOptions":
    """Return Beam's PipelineOptions of some command-line arguments."""
    from apache_beam.options.pipeline_options import PipelineOptions

    return PipelineOptions(list(arguments))


@contextlib.contextmanager
def servers_ended(runner: "PipelineRunner") -> Iterator[None]:
    """Stop every job server that this Beam runner starts in the body, also after an error.

    Beam stops its servers only when this process ends, one after the other. Each is a Java process of hundreds of
    megabytes. If this process gets only some seconds to end, the remaining servers are orphaned.
    """
    start, previous_handler, servers = runner.default_job_server, signal.getsignal(signal.SIGINT), list["JobServer"]()

    def remember(options: "PipelineOptions") -> "JobServer":
        servers.append(start(options))
        return servers[-1]

    runner.default_job_server = remember
    try:
        yield
    finally:
        # Beam installs a handler of Ctrl-C that takes the server's lock. `server.stop()` holds that lock, so Ctrl-C
        # would deadlock.
        if previous_handler is not None and getattr(signal.getsignal(signal.SIGINT), "__self__", None) in servers:
            signal.signal(signal.SIGINT, previous_handler)
        for server in servers:
            with contextlib.suppress(OSError):  # the server's temporary folder was removed already
                server.stop()


@contextlib.contextmanager
def started_quietly() -> Iterator[None]:
    """Put a `python` first on PATH that is this interpreter with stderr discarded: Beam starts workers by that name.

    At the end of a run, Flink closes the connection to its workers, and each prints a traceback of twenty lines. The
    previous PATH is restored after the body.
    """
    previous_path = os.environ.get("PATH")
    with atomic_files.temporary_folder() as folder:
        script = Path(folder) / "python"
        # -P: otherwise a file such as `random.py` in the user's folder would be imported instead of the standard
        # module.
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P "$@" 2>/dev/null\n')
        script.chmod(0o755)
        os.environ["PATH"] = os.pathsep.join([folder, *([previous_path] if previous_path else [])])
        try:
            yield
        finally:
            if previous_path is None:
                del os.environ["PATH"]
            else:
                os.environ["PATH"] = previous_path


def ignore_closed_connections() -> None:
    """Install a `threading.excepthook` that prints no traceback for gRPC errors.

    Threads of Beam still read from the engine when it closes the connection at the end of a run. Other exceptions go
    to the previous hook.
    """
    previous_hook = threading.excepthook
    if getattr(previous_hook, "ignores_closed_connections", False):
        return

    def hook(args: threading.ExceptHookArgs) -> None:
        import grpc

        if not isinstance(args.exc_value, grpc.RpcError):
            previous_hook(args)

    hook.ignores_closed_connections = True  # type: ignore[attr-defined]
    threading.excepthook = hook


_STEP_SUFFIX = re.compile(r" \[while running '[^']*'\]")
# Distributed runners pass on an exception as the text of its traceback. Some of them escape the newlines as "\n".
# After the message come the step that Beam adds, and on a line of its own the code.
_OURS = re.compile(
    r"t5prep\.errors\.(\w+Error): (.+?)(?: \[while running '[^']*'\])?(?:\\n|\n)\[([a-z]+\.[a-z0-9-]+)\]"
)
# numpy's and Arrow's messages name the allocated size. Beam replaces exception types that it cannot construct, so the
# text is searched. The last two alternatives are messages of threads that cannot be started.
_MEMORY = re.compile(
    r"MemoryError|Unable to allocate|bad_alloc|Resource temporarily unavailable|can't start new thread"
)
_LAST = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception): .+$", re.MULTILINE)
_LONGEST = 400
_NO_MEMORY = (
    "This machine ran out of memory. Try again with fewer workers and less memory: --workers 1 --memory 1GiB "
    "(the next run reuses what is tokenized already)"
)


@contextlib.contextmanager
def explained(engine: str, *, out: str) -> Iterator[None]:
    """Convert an exception of the body into a T5prepError: the one that a worker raised, or one with the engine's message.

    `engine` is the `--runner` in use, `out` the dataset's folder. With "local", unknown exceptions are raised
    unchanged, because they are bugs.
    """
    try:
        yield
    except T5prepError as error:
        raise type(error)(_STEP_SUFFIX.sub("", str(error)), code=error.code) from error
    except OSError as error:
        raise OutputError(f"{out}: {_STEP_SUFFIX.sub('', str(error))}", code="output.unwritable") from error
    except Exception as error:
        if match := _OURS.search(str(error)):
            raise getattr(errors, match[1])(match[2], code=match[3]) from error
        if isinstance(error, MemoryError) or _MEMORY.search(str(error)):
            raise T5prepError(
                _NO_MEMORY
                if engine == "local"
                else f"A worker of {engine} ran out of memory. Use workers with more memory.",
                code="pipeline.out-of-memory",
            ) from error
        if engine == "local":
            raise
        last = (_LAST.findall(str(error)) or [str(error).strip() or type(error).__name__])[-1]
        line = " ".join(_STEP_SUFFIX.sub("", last).split())
        raise T5prepError(f"--runner {engine} failed: {line[:_LONGEST]}", code="pipeline.failure") from error
