"""A standalone Flink of one job manager and several task managers, from the jars that `.ci/engines` installs.

Beam's Python runs in a worker pool beside it, as on a cluster whose task managers have a sidecar.
"""

import contextlib
import json
import os
import random
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipelines import engines

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
taskmanager.numberOfTaskSlots: {slots}
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
heartbeat.timeout: 120000
pekko.ask.timeout: 300 s
restart-strategy.type: fixed-delay
restart-strategy.fixed-delay.attempts: 5
restart-strategy.fixed-delay.delay: 1 s
classloader.resolve-order: parent-first
io.tmp.dirs: {folder}
blob.storage.directory: {folder}
"""


class Cluster:
    """Hold the processes of a cluster, and say how to hand it a pipeline."""

    def __init__(self, folder: Path, *, task_managers: int, slots: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self.lost_manager = folder, ""
        self.rest, rpc, self.pool = _free_port(), _free_port(), _free_port()
        config = _CONFIG.format(rpc=rpc, rest=self.rest, folder=folder, slots=slots)
        (folder / "flink-conf.yaml").write_text(config)
        self._processes = [
            self._python("-m", "apache_beam.runners.worker.worker_pool_main", f"--service_port={self.pool}"),
            self._java(f"{_MAIN}.entrypoint.StandaloneSessionClusterEntrypoint"),
        ]
        self.task_managers = {
            name: self._java(f"{_MAIN}.taskexecutor.TaskManagerRunner", f"-Dtaskmanager.resource-id={name}")
            for name in map("task-manager-{}".format, range(task_managers))
        }

    @property
    def arguments(self) -> list[str]:
        """Return Beam's options that run a pipeline here.

        Whether a job goes on without a lost task manager is the cluster's to decide: of batches Beam's
        `--number_of_execution_retries` is not heard (2.62).
        """
        return [
            f"--flink_master=localhost:{self.rest}",
            "--environment_type=EXTERNAL",
            f"--environment_config=localhost:{self.pool}",
        ]

    def ask(self, path: str) -> Any:
        """Return an answer of the job manager's REST API."""
        with urllib.request.urlopen(f"http://localhost:{self.rest}/{path}", timeout=300) as answer:
            return json.load(answer)

    def lose_one_at_work(self) -> None:
        """Kill a task manager that is at work on a job now; to be called by what the job waits for."""
        running = [task["taskmanager-id"] for task in self._tasks() if task["status"] == "RUNNING"]
        process = self.task_managers[running[0]]
        process.kill()
        process.wait()
        self.lost_manager = running[0]

    def attempts(self) -> int:
        """Return how often the task that was begun most often was begun."""
        return 1 + max(int(task["attempt"]) for task in self._tasks())

    def elements(self) -> dict[str, list[int]]:
        """Return by the name of each step how many elements each task manager took in and gave out there."""
        counts = {}
        for path, name in self._steps():
            metrics = [task_manager["metrics"] for task_manager in self.ask(f"{path}/taskmanagers")["taskmanagers"]]
            counts[name] = [counters["read-records"] + counters["write-records"] for counters in metrics]
        return counts

    def _steps(self) -> list[tuple[str, str]]:
        jobs = [f"jobs/{job['id']}" for job in self.ask("jobs")["jobs"]]
        return [(f"{job}/vertices/{step['id']}", step["name"]) for job in jobs for step in self.ask(job)["vertices"]]

    def _tasks(self) -> list[dict[str, Any]]:
        return [task for path, _ in self._steps() for task in self.ask(path)["subtasks"]]

    def until(self, true: Any, *, seconds: float = 600) -> None:
        """Wait for something that the cluster says."""
        end = time.monotonic() + seconds
        while True:
            with contextlib.suppress(OSError, LookupError):
                if true():
                    return
            ended = any(process.poll() is not None for process in (*self._processes, *self.task_managers.values()))
            if ended or time.monotonic() > end:
                raise TimeoutError("\n".join(path.read_text()[-2000:] for path in self._folder.glob("*.log")))
            time.sleep(0.2)

    def close(self) -> None:
        """End all of it."""
        for process in [*self.task_managers.values(), *self._processes]:
            process.kill()
            process.wait()

    def _java(self, main: str, *arguments: str) -> subprocess.Popen:
        jars = engines.folder() / "flink" / "jars" / "*"
        return self._start(
            main.rpartition(".")[2],
            [
                "java",
                "-Xmx400m",
                "-Dpekko.remote.classic.startup-timeout=300s",
                *_OPENS,
                "-cp",
                str(jars),
                main,
                "--configDir",
                str(self._folder),
                *arguments,
            ],
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
def cluster(folder: Path, *, task_managers: int = 2, slots: int = 2) -> Iterator[Cluster]:
    """Yield a cluster that is up; it is down again afterwards."""
    started = Cluster(folder, task_managers=task_managers, slots=slots)
    try:
        started.until(lambda: started.ask("taskmanagers")["taskmanagers"][task_managers - 1])
        yield started
    finally:
        started.close()


def _free_port() -> int:
    """Return a port below those that outgoing connections are given: one of these might take it before Flink does."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as listening, contextlib.suppress(OSError):
            listening.bind(("localhost", port))
            return port
