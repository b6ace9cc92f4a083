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
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from t5prep.errors import UsageError
from t5prep.io import paths
from t5prep.io.installation import python
from t5prep.train.settings.config import TrainConfig

PROJECT = "t5prep"  # where the client is not told another one
KEPT = "track.json"  # in the run
PACKAGES = ("wandb", "trackio", "mlflow")  # of the clients


def check(client: str) -> None:
    """Raise UsageError if the client that a run is to be tracked with is not installed."""
    if client in PACKAGES and importlib.util.find_spec(client) is None:
        raise UsageError(f"track={client} needs the package {client}. Install it: {python()} -m pip install {client}")


class _Client(NamedTuple):
    """A run at a client: its id there, and what sends the numbers of a step and ends the run."""

    id: str
    log: Callable[..., Any]
    finish: Callable[[], Any]


class Tracker:
    """Send numbers to one client. `said` hears the sentence when it fails: then no more is sent, and the run goes on."""

    def __init__(self, client: _Client, *, said: Any) -> None:
        self._client: _Client | None = client
        self._said = said

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Send the numbers of one step."""
        if self._client is None:
            return
        try:
            self._client.log({name: float(value) for name, value in values.items()}, step=step)
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
    settings = {
        key: ", ".join(map(str, value)) if isinstance(value, tuple | list) else value  # as all clients take it
        for key, value in dataclasses.asdict(config).items()
    }
    try:
        client = _begun(config.track, name, before, settings)
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


def _begun(name: str, run: str, before: str, settings: dict[str, Any]) -> _Client:
    """Begin a run at a client, or go on with the run that has the id `before` there."""
    client: Any = importlib.import_module(name)
    if name == "mlflow":
        begun = client.start_run(run_id=before) if before else client.start_run(run_name=run)
        if not before:
            client.log_params(settings)
        return _Client(begun.info.run_id, client.log_metrics, client.end_run)
    project = os.environ.get(f"{name.upper()}_PROJECT") or PROJECT
    if name == "trackio":  # continues a run by its name
        id = before or f"{run}-{secrets.token_hex(4)}"
        client.init(project=project, name=id, config=settings, resume="allow", embed=False)
        return _Client(id, client.log, client.finish)
    id = before or secrets.token_hex(4)
    console = client.Settings(console="off")  # is not copied: it says paths of this machine
    begun = client.init(project=project, id=id, name=run, config=settings, resume="allow", settings=console)
    return _Client(id, begun.log, begun.finish)


def _words(error: Exception) -> str:
    """Return the first line of an error, of bounded length."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:200]}" if text else type(error).__name__
