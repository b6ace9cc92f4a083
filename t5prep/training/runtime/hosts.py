"""Connect the hosts of a run: join them, let them wait for each other, and choose the one that writes."""

import atexit
import contextlib
import os
import socket
import sys
import urllib.request
from collections.abc import Iterator

from t5prep.errors import T5prepError, UsageError

# The metadata of a TPU VM about its slice's workers (https://cloud.google.com/compute/docs/metadata/overview).
_WORKERS = "http://metadata.google.internal/computeMetadata/v1/instance/attributes/worker-network-endpoints"
_SECONDS = 5.0  # the timeout of the metadata server
# A host that is silent for this long is dead or frozen. jax then ends the other hosts, whose devices would wait for ever.
HEARTBEAT_SECONDS = 60


def join(platform: str) -> None:
    """Join the other hosts of a run, once: those of a TPU slice, or those of the coordinator JAX_COORDINATOR_ADDRESS.

    From then on jax's coordination service ends this process if another host is dead or frozen (`HEARTBEAT_SECONDS`). Raises
    T5prepError if the hosts do not answer.
    """
    import jax

    has_coordinator = "JAX_COORDINATOR_ADDRESS" in os.environ
    if jax.distributed.is_initialized() or not (has_coordinator or (platform == "tpu" and _workers() > 1)):
        return
    names = {"num_processes": "JAX_NUM_PROCESSES", "process_id": "JAX_PROCESS_ID"} if has_coordinator else {}
    numbers: dict[str, int] = {argument: _number(name) for argument, name in names.items()}
    try:
        jax.distributed.initialize(**numbers, initialization_timeout=300, heartbeat_timeout_seconds=HEARTBEAT_SECONDS)
        jax.config.update("jax_platforms", platform if platform == "cpu" else f"{platform},cpu")
    except (RuntimeError, ValueError, OSError) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise T5prepError(
            f"The hosts of this run cannot connect to each other ({reason[0][:200]}). Start the same "
            "command on all hosts: gcloud compute tpus tpu-vm ssh NAME --worker=all --command=...",
            code="device.unreachable-host",
        ) from error


def given_processes() -> int:
    """Return the number in JAX_NUM_PROCESSES if JAX_COORDINATOR_ADDRESS is set; otherwise 1. Raises UsageError."""
    return _number("JAX_NUM_PROCESSES") if "JAX_COORDINATOR_ADDRESS" in os.environ else 1


def count() -> int:
    """Return the number of processes that train together. No device is opened if this process joined no others."""
    import jax

    return int(jax.process_count()) if jax.distributed.is_initialized() else 1


def writes() -> bool:
    """Check whether this process writes logs and settings: the first one, or one that joined no others.

    In the second case no device is opened. `push` may run beside a training on the same machine, and must not take its chips.
    """
    import jax

    return not jax.distributed.is_initialized() or bool(jax.process_index() == 0)


def wait(name: str) -> None:
    """Wait until all processes have called `wait` with the same `name`."""
    if count() > 1:
        from jax.experimental import multihost_utils

        multihost_utils.sync_global_devices(name)


@contextlib.contextmanager
def end_all_on_failure() -> Iterator[None]:
    """Run a block on all hosts; if it fails on one host, end it on all. Raises T5prepError if another host has ended."""
    import jax

    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        leave(failed=True)
        if count() == 1:
            raise
        raise T5prepError(
            f"The devices of this run failed ({str(error).splitlines()[0][:200]}), possibly because "
            "another host has ended. Start the same command on all hosts to resume from the last "
            "checkpoint.",
            code="device.failure",
        ) from error
    except BaseException:
        leave(failed=True)
        raise
    leave(failed=False)


def leave(*, failed: bool) -> None:
    """End this host's part of a run: together with the others, or, if it `failed`, so that the other hosts end too."""
    import jax

    if count() == 1:
        return
    if failed:
        atexit.unregister(jax.distributed.shutdown)  # it would wait for minutes for the other hosts

        def end_now() -> None:  # because a normal exit would wait for the other hosts
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)

        atexit.register(end_now)
    else:
        wait("the run has ended")
        # All hosts shut down now. At the end of the process, each would wait until the others have written their output.
        jax.distributed.shutdown()


def stopping(step: int) -> bool:
    """Check whether all hosts end after `step` because one received SIGTERM. Every host must call this at each step."""
    from jax.experimental import multihost_utils

    return count() > 1 and bool(multihost_utils.reached_preemption_sync_point(step))


def check_places(*places: str) -> None:
    """Raise UsageError if one of `places` is a local directory and the run has several machines."""
    local = [path for path in places if path and "://" not in path]
    if local and (machines := _machines()) > 1:
        raise UsageError(
            f"{local[0]} is a directory of one machine, but {machines} machines train together. Use a "
            "shared place: gs://BUCKET/...",
            code="bucket.local-path",
        )


def _machines() -> int:
    """Return the number of machines on which the processes of the run are."""
    if count() == 1:
        return 1
    import zlib

    import numpy as np
    from jax.experimental import multihost_utils

    this_machine = np.uint32(zlib.crc32(socket.gethostname().encode()))
    return len(set(np.asarray(multihost_utils.process_allgather(this_machine)).tolist()))


def _workers() -> int:
    """Return the number of hosts of this machine's TPU slice; 1 if that is unknown."""
    if names := os.environ.get("TPU_WORKER_HOSTNAMES"):
        return len(names.split(","))
    request = urllib.request.Request(_WORKERS, headers={"Metadata-Flavor": "Google"})
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            return len(answer.read().decode().split(","))
    except (OSError, ValueError):
        return 1


def _number(name: str) -> int:
    try:
        return int(os.environ[name])
    except (KeyError, ValueError) as error:
        raise UsageError(
            f"JAX_COORDINATOR_ADDRESS is set, but {name} is not a number. Set {name} to a number.",
            code="option.invalid-variable",
        ) from error
