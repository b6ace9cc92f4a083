"""Send a run's numbers to Weights & Biases, Trackio or MLflow, by these packages' own clients, where they are installed.

Where they go, and whether a network is used at all, is the client's own affair: WANDB_MODE=offline, MLFLOW_TRACKING_URI and
so on hold. What is sent are the settings of the run and the numbers of metrics.jsonl. The run keeps the name under which the
client knows it, so that one which is continued is continued there too.
"""

import contextlib
import dataclasses
import importlib
import importlib.util
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from typing import Any

from t5prep.errors import UsageError
from t5prep.io import paths
from t5prep.io.installation import python
from t5prep.train.settings.config import TrainConfig

PROJECT = "t5prep"  # where the client is not told another one
KEPT = "track.json"  # in the run
# The package of each client, as pip knows it.
PACKAGES = {"wandb": "wandb", "trackio": "trackio", "mlflow": "mlflow"}


def check(client: str) -> None:
    """Raise UsageError if the client that a run is to be tracked with is not installed."""
    if client in PACKAGES and importlib.util.find_spec(client) is None:
        raise UsageError(
            f"track={client} needs the package {PACKAGES[client]}. Install it: {python()} -m pip install {PACKAGES[client]}"
        )


class Tracker:
    """Send numbers to one client. `said` hears the sentence when it fails: then no more is sent, and the run goes on."""

    def __init__(self, client: Any, *, said: Any) -> None:
        self._client, self._said = client, said

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Send the numbers of one step."""
        if self._client is None:
            return
        try:
            self._client.log(step, {name: float(value) for name, value in values.items()})
        except Exception as error:  # a stranger's server, network or disk is no reason to end a training
            self._client = None
            self._said(f"No more is sent to the tracker ({_words(error)}). metrics.jsonl has all numbers.")

    def finish(self) -> None:
        """End the run at the client. What it has not sent by then it sends now."""
        if self._client is not None:
            try:
                self._client.finish()
            except Exception as error:
                self._said(f"The tracker did not end as it should ({_words(error)}). metrics.jsonl has all numbers.")


@contextlib.contextmanager
def tracked(config: TrainConfig, *, said: Any) -> Iterator[Tracker | None]:
    """Track a run with the client that its settings name, until its end. Raises UsageError if the client cannot begin."""
    if config.track not in PACKAGES:
        yield None
        return
    name = config.out.rstrip("/").rpartition("/")[2] or PROJECT
    path = paths.at(config.out, KEPT)
    try:
        known = json.loads(paths.read(path))
        before = str(known["id"]) if known["client"] == config.track else ""
    except (OSError, ValueError, KeyError, TypeError):
        before = ""
    settings = {key: _plain(value) for key, value in dataclasses.asdict(config).items()}
    try:
        client: Any = _CLIENTS[config.track](importlib.import_module(config.track), name, before, settings)
    except Exception as error:
        raise UsageError(
            f"{config.track} cannot begin a run ({_words(error)}). Set it up, or train without it: --set track=none"
        ) from error
    paths.write(path, (json.dumps({"client": config.track, "id": client.id}) + "\n").encode())
    tracker = Tracker(client, said=said)
    try:
        yield tracker
    finally:
        tracker.finish()


class _Wandb:
    """Weights & Biases: `id` is its id of the run."""

    def __init__(self, wandb: Any, name: str, before: str, settings: Mapping[str, Any]) -> None:
        self.id = before or secrets.token_hex(4)
        # The console is not copied: it says paths of this machine.
        self._run = wandb.init(
            project=_project("WANDB_PROJECT"),
            id=self.id,
            name=name,
            config=dict(settings),
            resume="allow",
            settings=wandb.Settings(console="off"),
        )

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def finish(self) -> None:
        self._run.finish()


class _Trackio:
    """Trackio: `id` is the name of the run, by which it is continued."""

    def __init__(self, trackio: Any, name: str, before: str, settings: Mapping[str, Any]) -> None:
        self.id = before or f"{name}-{secrets.token_hex(4)}"
        self._trackio = trackio
        trackio.init(
            project=_project("TRACKIO_PROJECT"), name=self.id, config=dict(settings), resume="allow", embed=False
        )

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._trackio.log(dict(values), step=step)

    def finish(self) -> None:
        self._trackio.finish()


class _Mlflow:
    """MLflow: `id` is its id of the run."""

    def __init__(self, mlflow: Any, name: str, before: str, settings: Mapping[str, Any]) -> None:
        self._mlflow = mlflow
        if before:
            self.id = mlflow.start_run(run_id=before).info.run_id
        else:
            self.id = mlflow.start_run(run_name=name).info.run_id
            mlflow.log_params(dict(settings))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._mlflow.log_metrics(dict(values), step=step)

    def finish(self) -> None:
        self._mlflow.end_run()


_CLIENTS = {"wandb": _Wandb, "trackio": _Trackio, "mlflow": _Mlflow}


def _project(variable: str) -> str:
    return os.environ.get(variable) or PROJECT


def _plain(value: Any) -> Any:
    """Return a setting as all clients take it."""
    return ", ".join(map(str, value)) if isinstance(value, tuple | list) else value


def _words(error: Exception) -> str:
    """Return the first line of an error, of bounded length."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:200]}" if text else type(error).__name__
