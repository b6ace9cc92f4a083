"""What every test may ask for: the real data of the seeds where it is, and the hosts that text comes from."""

import os
from pathlib import Path

import pytest
from servers.gcs_emulator import bucket, emulator, front  # noqa: F401 - fixtures
from servers.googleapis import googleapis  # noqa: F401 - a fixture
from servers.internet import _authority, internet  # noqa: F401 - fixtures

from pipelines import engines

# Eight logical devices of the CPU, for what several devices share; it is read when jax is first asked for a device.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

# Tests give t5prep cache folders of their own; engines stay where `.ci/engines` installed them.
os.environ.setdefault("T5PREP_ENGINES", str(engines.folder()))
# Scripts that are run by other tests or by hand, in environments of their own.
collect_ignore_glob = ["benchmarks/*", "worker_of_dataflow.py"]
DATA = Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture
def shared_data() -> Path:
    """Real files of the seeds' corpora; tests that want them skip where they are missing."""
    if not DATA.is_dir():
        pytest.skip("the seeds' data is not on this machine")
    return DATA


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the slow tests too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--slow"):
        slow = [item for item in items if item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """List the files with a skipped test in the file `T5PREP_SKIPPED`; with `T5PREP_NO_SKIPS`, a skip is a failure.

    CI runs the tests as a new user does, installs what a user may lack, and then runs the listed files again: there, a
    test that skips is a test that never runs.
    """
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    if listed := os.environ.get("T5PREP_SKIPPED"):
        files = sorted({report.nodeid.partition("::")[0] for report in skipped})
        Path(listed).write_text("".join(f"{file}\n" for file in files), encoding="utf-8")
    if os.environ.get("T5PREP_NO_SKIPS") and skipped and exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
