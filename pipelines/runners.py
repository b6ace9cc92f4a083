"""Choose what runs the pipeline (Prism, Flink or Dataflow) and the options it is given."""

import atexit
import contextlib
import dataclasses
import logging
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipelines import engines, job_servers, quiet_workers
from t5prep import __version__
from t5prep.errors import UsageError

# Beam options that Beam would otherwise choose so that a user's machine stumbles.
_PRISM = ["--environment_type=LOOPBACK", "--prism_log_level=error"]
_FLINK = [
    f"--flink_version={engines.FLINK}",
    "--flink_master=[auto]",
    "--experiments=use_loopback_process_worker",
    "--environment_cache_millis=60000",  # else every stage starts Python anew
]
# Nothing is defined in __main__, so there is no main session to pickle.
_DATAFLOW = ["--no_save_main_session", "--job_name=t5prep-prepare"]


@dataclasses.dataclass(frozen=True)
class Engine:
    """Hold a Beam runner and its options. Its workers share neither memory nor disk with this process."""

    name: str
    runner: Any
    options: Any


def engine(name: str, *, arguments: Sequence[str] = (), workers: int | None = None) -> Engine:
    """Return the engine of a `--runner`. `arguments` are Beam's own options, which win over ours. Raises UsageError."""
    # Beam logs a traceback of every error before it raises it; what matters is raised.
    for logger in ("apache_beam", "root", "PrismRunner", "FlinkJarJobServer", "PrismJobServer", "SdkWorker"):
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    return {"prism": _prism, "flink": _flink, "dataflow": _dataflow}[name](list(arguments), workers)


@contextlib.contextmanager
def running(engine: Engine) -> Iterator[None]:
    """Let a pipeline run meanwhile; then end what the engine started on this machine, and undo what it changed.

    Prism's server is one small process, which later runs use too: it ends with this one.
    """
    if engine.name != "flink":
        yield
        return
    # Beam starts its worker processes as `python`: it shall be this one, also where its environment is not activated.
    with quiet_workers.started_quietly(), job_servers.ended(engine.runner):
        yield


def _prism(arguments: list[str], workers: int | None) -> Engine:
    from apache_beam.runners.portability.prism_runner import PrismRunner

    quiet_workers.ignore_closed_connections()
    own = [f"--prism_location={engines.prism()}"] if engines.prism() else []
    return Engine("prism", PrismRunner(), _options([*_PRISM, *own, *arguments]))


def _flink(arguments: list[str], workers: int | None) -> Engine:
    from apache_beam.runners.portability.flink_runner import FlinkRunner

    quiet_workers.ignore_closed_connections()
    jar = engines.flink_job_server()
    own = [f"--flink_job_server_jar={jar}"] if jar else []
    parallel = [f"--parallelism={workers}", f"--sdk_worker_parallelism={workers}"] if workers else []
    return Engine("flink", FlinkRunner(), _options([*_FLINK, *own, *parallel, *arguments]))


def _dataflow(arguments: list[str], workers: int | None) -> Engine:
    from apache_beam.options.pipeline_options import GoogleCloudOptions
    from apache_beam.runners.dataflow.dataflow_runner import DataflowRunner

    options = _options([*_package(), *_DATAFLOW, *([f"--max_num_workers={workers}"] if workers else []), *arguments])
    cloud = options.view_as(GoogleCloudOptions)
    for name in ("project", "region", "temp_location"):
        if not getattr(cloud, name):
            raise UsageError(
                f"--runner dataflow needs --{name}. Say it behind the other options: "
                "-- --project=MINE --region=us-central1 --temp_location=gs://BUCKET/tmp"
            )
    return Engine("dataflow", DataflowRunner(), options)


def _package() -> list[str]:
    """Return the options by which workers get t5prep: by its setup.py, else as the released package of this version."""
    setup = Path(__file__).parents[1] / "setup.py"
    if setup.exists():
        return [f"--setup_file={setup}"]
    folder = tempfile.mkdtemp(prefix="t5prep-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    wanted = Path(folder) / "requirements.txt"
    wanted.write_text(f"t5prep=={__version__}\n")
    return [f"--requirements_file={wanted}"]


def _options(arguments: Sequence[str]) -> Any:
    from apache_beam.options.pipeline_options import PipelineOptions

    return PipelineOptions(list(arguments))
