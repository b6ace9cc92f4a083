"""Open the devices of a run as jax's devices: a TPU, GPUs, or the CPU. Raise a clear error if there is none."""

import glob
import importlib.util
import os
from typing import TYPE_CHECKING

from t5prep.errors import UsageError
from t5prep.io import signals
from t5prep.io.installation import install_command
from t5prep.training.runtime import hosts
from t5prep.training.runtime.layout import Layout, arrange, fitting_shard

if TYPE_CHECKING:
    import jax

# The device files of TPU chips on a TPU VM: v2 to v4 as accel devices, v5 and later through vfio.
_CHIPS = ("/dev/accel*", "/dev/vfio/[0-9]*")


def open_layout(
    *, tpu: str | None = None, gpus: bool = False, replicas: int = 1, shard: int | None = 1, weight_bytes: int = 0
) -> Layout:
    """Return the layout of the devices for `--tpu`, `--gpus` or the CPU. Raises UsageError if they do not exist.

    Args:
        tpu: "auto" or "local" for the TPU of this machine; None for no TPU.
        gpus: Whether to use all GPUs of this machine.
        replicas: The number of replicas on logical CPU devices, for tests.
        shard: Devices of each replica; None for as many as `weight_bytes` need.
        weight_bytes: The size of the model's weights in float32.
    """
    if tpu is not None and gpus:
        raise UsageError("Use either --tpu or --gpus, not both.", code="option.conflict")
    devices = _tpu(tpu) if tpu is not None else _gpus() if gpus else _cpus(replicas * (shard or 1))
    return arrange(devices, shard=shard or fitting_shard(devices, weight_bytes=weight_bytes))


def chips() -> list[str]:
    """Return the device files of the TPU chips of this machine; an empty list if there is no chip."""
    return sorted(path for pattern in _CHIPS for path in glob.glob(pattern))


def _tpu(name: str) -> "list[jax.Device]":
    """Return the devices of this machine's TPU, and of the other hosts of its slice."""
    if name not in ("auto", "local"):
        raise UsageError(
            f"--tpu {name} is not on this machine, and a TPU is used from its own VM. Run the same "
            f"command there with --tpu local (gcloud compute tpus tpu-vm ssh {name} --worker=all "
            "--command=...).",
            code="device.remote-tpu",
        )
    if not chips():  # checked first, because libtpu would query the network about this machine and wait for an answer
        raise UsageError(
            f"--tpu found no TPU chip among {' '.join(_CHIPS)}. Run this command on a TPU VM (gcloud "
            "compute tpus tpu-vm ssh NAME), or remove --tpu to use the CPU.",
            code="device.missing-tpu",
        )
    if importlib.util.find_spec("libtpu") is None:
        raise UsageError(
            "This machine has TPU chips, but libtpu, which --tpu needs, is not installed. Install it: "
            f"{install_command('tpu')}",
            code="install.extra-missing",
        )
    return _devices("tpu", "--tpu: the TPU does not respond")


def _gpus() -> "list[jax.Device]":
    """Return the NVIDIA GPUs of this machine."""
    if importlib.util.find_spec("jax_cuda12_plugin") is None and importlib.util.find_spec("jax_cuda13_plugin") is None:
        raise UsageError(
            f"--gpus needs jax with CUDA, but jax is installed without CUDA. Install it: {install_command('gpu')}",
            code="install.extra-missing",
        )
    return _devices("cuda", "--gpus: jax finds no GPU (list the GPUs of this machine with nvidia-smi)")


def _cpus(count: int) -> "list[jax.Device]":
    """Return `count` logical CPU devices, in equal numbers from each host if there are several hosts."""
    import jax

    processes = hosts.given_processes()
    count = -(-count // processes)
    if jax.config.jax_num_cpu_devices < count and "host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        try:
            jax.config.update("jax_num_cpu_devices", count)
        except RuntimeError as error:  # no devices can be added once some are in use
            raise UsageError(
                f"{count} CPU devices were requested after the first devices were in use. Restart the program.",
                code="device.cpu-count-conflict",
            ) from error
    cpus = _devices("cpu", "The CPU cannot be used")
    if processes > 1:
        of_process = {
            number: [cpu for cpu in cpus if cpu.process_index == number][:count] for number in range(processes)
        }
        return [device for devices in of_process.values() for device in devices]
    if len(cpus) < count:
        raise UsageError(
            f"{count} CPU devices were requested, but XLA_FLAGS creates {len(cpus)}. Change XLA_FLAGS.",
            code="device.cpu-count-conflict",
        )
    return cpus[:count]


def _devices(platform: str, sentence: str) -> "list[jax.Device]":
    """Return all devices of a platform on all hosts. Raises UsageError with `sentence` and jax's reason."""
    import jax

    jax.config.update("jax_platforms", platform if platform == "cpu" else f"{platform},cpu")
    hosts.join(platform)
    try:
        with signals.kept_from_new_threads():  # the first call of jax.devices starts many threads
            return list(jax.devices(platform))
    except RuntimeError as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise UsageError(f"{sentence}: {reason[0][:200]}", code="device.unavailable") from error
