"""A standalone Flink of one job manager and several task managers, from the jars that `.ci/engines` installs.

Beam's Python runs in a worker pool beside it, as on a cluster whose task managers have a sidecar.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from t5prep import engines

_MAIN = "org.apache.flink.runtime"
_OPENS = [
    f"--add-opens=java.base/java.{name}=ALL-UNNAMED"
    for name in ("lang", "util", "time", "net", "nio", "util.concurrent")
]
# Given in full, as Flink's own scripts would compute them.
_CONFIG = """
jobmanager.rpc.address: localhost
jobmanager.rpc.port: {rpc}
jobmanager.bind-host: localhost
jobmanager.memory.heap.size: 256m
rest.port: {rest}
rest.address: localhost
taskmanager.host: localhost
taskmanager.numberOfTaskSlots: 2
taskmanager.cpu.cores: 1
taskmanager.memory.task.heap.size: 256m
taskmanager.memory.task.off-heap.size: 0
taskmanager.memory.framework.heap.size: 64m
taskmanager.memory.framework.off-heap.size: 64m
taskmanager.memory.jvm-metaspace.size: 192m
taskmanager.memory.jvm-overhead.min: 64m
taskmanager.memory.jvm-overhead.max: 64m
taskmanager.memory.network.min: 256m
taskmanager.memory.network.max: 256m
taskmanager.memory.managed.size: 128m
heartbeat.interval: 1000
heartbeat.timeout: 8000
classloader.resolve-order: parent-first
io.tmp.dirs: {folder}
blob.storage.directory: {folder}
"""


class Cluster:
    """Processes of a cluster, and how to hand it a pipeline."""

    def __init__(self, folder: Path, *, task_managers: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self.lost_while_running = folder, False
        self.rest, rpc, self.pool = _free_port(), _free_port(), _free_port()
        (folder / "flink-conf.yaml").write_text(_CONFIG.format(rpc=rpc, rest=self.rest, folder=folder))
        self._processes = [
            self._python("-m", "apache_beam.runners.worker.worker_pool_main", f"--service_port={self.pool}"),
            self._java(f"{_MAIN}.entrypoint.StandaloneSessionClusterEntrypoint"),
        ]
        self.task_managers = [self._java(f"{_MAIN}.taskexecutor.TaskManagerRunner") for _ in range(task_managers)]

    @property
    def arguments(self) -> list[str]:
        """Beam options that run a pipeline here, and run it again when a task manager is lost."""
        return [
            f"--flink_master=localhost:{self.rest}",
            "--environment_type=EXTERNAL",
            f"--environment_config=localhost:{self.pool}",
            "--number_of_execution_retries=5",
            "--execution_retry_delay=1000",
        ]

    def ask(self, what: str) -> Any:
        """An answer of the job manager's REST API."""
        with urllib.request.urlopen(f"http://localhost:{self.rest}/{what}", timeout=5) as answer:
            return json.load(answer)

    def lose_one_when_running(self) -> None:
        """Kills a task manager in the middle of a job: when a third of its tasks are done and some are running."""

        def middle() -> bool:
            for job in self.ask("jobs")["jobs"]:
                tasks = [task["status"] for task in self.ask(f"jobs/{job['id']}")["vertices"]]
                if 3 * tasks.count("FINISHED") >= len(tasks) and "RUNNING" in tasks:
                    return True
            return False

        self.until(middle)
        self.task_managers[0].kill()
        self.task_managers[0].wait()
        self.lost_while_running = any(job["status"] in ("RUNNING", "RESTARTING") for job in self.ask("jobs")["jobs"])
        self.until(lambda: len(self.ask("taskmanagers")["taskmanagers"]) == len(self.task_managers) - 1)

    def until(self, true: Any, *, seconds: float = 120) -> None:
        """Waits for something that the cluster says."""
        end = time.monotonic() + seconds
        while True:
            with contextlib.suppress(OSError, LookupError):
                if true():
                    return
            if time.monotonic() > end:
                raise TimeoutError("\n".join(path.read_text()[-2000:] for path in self._folder.glob("*.log")))
            time.sleep(0.2)

    def close(self) -> None:
        """Ends all of it."""
        for process in [*self.task_managers, *self._processes]:
            process.kill()
            process.wait()

    def _java(self, main: str) -> subprocess.Popen:
        jars = engines.folder() / "flink" / "jars" / "*"
        return self._start(
            main.rpartition(".")[2],
            ["java", "-Xmx400m", *_OPENS, "-cp", str(jars), main, "--configDir", str(self._folder)],
        )

    def _python(self, *arguments: str) -> subprocess.Popen:
        return self._start("workers", [sys.executable, *arguments])

    def _start(self, name: str, command: list[str]) -> subprocess.Popen:
        bin = os.path.dirname(sys.executable)
        path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])
        env = os.environ | {"PATH": f"{bin}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": path}
        with open(self._folder / f"{name}.log", "ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=env)


@contextlib.contextmanager
def cluster(folder: Path, *, task_managers: int = 2) -> Iterator[Cluster]:
    """A cluster that is up, and down again afterwards."""
    started = Cluster(folder, task_managers=task_managers)
    try:
        started.until(lambda: started.ask("taskmanagers")["taskmanagers"][task_managers - 1])
        yield started
    finally:
        started.close()


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("localhost", 0))
        return int(listening.getsockname()[1])
