"""What every test may ask for, and which tests run: by the markers `slow` and `extra` (tests/extras.py)."""

import os
import signal
import threading
from collections.abc import Generator, Iterator
from pathlib import Path

import extras
import hypothesis
import pytest
import random_seeds
import xla_flags
from servers.gcs_emulator import bucket, emulator, front  # noqa: F401 - fixtures
from servers.googleapis import googleapis  # noqa: F401 - a fixture
from servers.internet import _authority, internet  # noqa: F401 - fixtures

from pipelines import engines

# How busy a machine is fails no test. Each run draws the same forty examples of a property, so that a change fails for what it
# changed; with T5PREP_SEEDS, as `make fuzz` sets it, a hundred others. Under sanitizers fewer must do.
hypothesis.settings.register_profile(
    "steady",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    max_examples=100 if random_seeds.ARE_GIVEN else 40,
    derandomize=not random_seeds.ARE_GIVEN,
)
hypothesis.settings.register_profile("sanitized", hypothesis.settings.get_profile("steady"), max_examples=25)
hypothesis.settings.load_profile("steady")

# A shell starts what stands behind `&` in a script with Ctrl-C ignored: the tests that send it, and their commands, hear it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

# It is read when jax is first asked for a device.
os.environ.setdefault("XLA_FLAGS", f"{xla_flags.DEVICES} {xla_flags.QUICK}")

# TensorFlow starts without Keras, as the commands start it: that is a third of its start, in each process that a test starts.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

# PyTorch's toys are computed by one thread: two wait for each other in a loop, for minutes where the cores are busy.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The job server and the clusters of Flink live for seconds: Java's second compiler costs them more than it gives.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# Tests have a cache folder of their own (`_own_state`); engines stay where `.ci/engines` installed them.
os.environ.setdefault("T5PREP_ENGINES", str(engines.folder()))
# Scripts that are run by other tests or by hand, in environments of their own.
collect_ignore_glob = ["benchmarks/*", "worker_of_dataflow.py"]
# The files that take longest, longest first, and then all that compile programs: they are begun before the short ones, so
# that two processes end at nearly the same time.
LONGEST = (
    *("training/published/test_real_weights", "planning/test_compiler", "pipelines/test_task_managers"),
    *("training/test_encoders", "test_published_table"),
    *(
        "training/runtime/test_step_layouts",
        "training/test_training_hosts",
        "training/test_training_sample",
        "planning/test_plan",
    ),
    *("test_faults", "test_interface", "test_readme", "test_tpu_install", "training/test_lora", "training/test_loop"),
    *(
        "training/test_beside_pytorch",
        "test_distribution",
        "training/publish/test_export",
    ),
    *("training/published/test_formats", "training/evaluate/test_one_record", "training/", "planning/", "pipelines/"),
)


@pytest.fixture(scope="session", autouse=True)
def _own_state(shared: Path) -> Iterator[None]:
    """A cache, a key and a list of code that was run which no test shares with the user, but all processes with each other.

    What one of them has compiled is signed with the key, and another one loads it. No test outlives a power cut: waiting for
    the disk takes a third of the time of preparing a small corpus.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(shared / "state"))
        patch.setenv("T5PREP_CACHE", str(shared / "cache"))
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the processes of pytest share: what is in it is made by one of them, and only read."""
    basetemp = tmp_path_factory.getbasetemp()
    folder = (basetemp.parent if "PYTEST_XDIST_WORKER" in os.environ else basetemp) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def lowered_once(shared: Path) -> Iterator[None]:
    """Lower no function twice in all processes of pytest, nor embed it twice in one: of a toy's run that is most of its time."""
    import lowered_programs  # needs TensorFlow

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(lowered_programs.VARIABLE, str(shared / "lowered"))
        for name, function in lowered_programs.functions(shared / "lowered").items():
            patch.setattr(lowered_programs.programs, name, function)
        yield


@pytest.fixture
def shared_data() -> Path:
    """Real files of the seeds' corpora."""
    return extras.DATA


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-skips", action="store_true", help="a test that is skipped fails")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    unmarked = []
    for item in items:
        marked_extras = {name for marker in item.iter_markers("extra") for name in marker.args}
        needed = {name for fixture, name in extras.FIXTURES.items() if fixture in getattr(item, "fixturenames", ())}
        unmarked += [f"{item.nodeid}: extra({name!r})" for name in sorted(needed - marked_extras)]
        for name in sorted(marked_extras):
            if advice := extras.what_lacks(name):
                item.add_marker(pytest.mark.skip(reason=f"{name} is not here: {advice}"))
    if unmarked:
        raise pytest.UsageError("Fixtures of these tests need a marker:\n" + "\n".join(unmarked))
    items.sort(key=_rank_file)


def _rank_file(item: pytest.Item) -> int:
    """Return how late a test's file is begun."""
    name = _file_of(item).removeprefix("tests/")
    return next((rank for rank, begins in enumerate(LONGEST) if name.startswith(begins)), len(LONGEST))


def _file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Make a failure of a skip where none is allowed, as in CI: there, a test that skips is one that never runs."""
    report = yield
    if report.skipped and item.config.getoption("--no-skips"):
        report.outcome = "failed"
    return report
