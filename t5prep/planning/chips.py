"""Define the kinds of TPU by numbers, and parse the names of TPU types.

All numbers are per *device*: the unit for which XLA compiles one program, which TensorFlow calls a replica. On v2, v3, v4
and TPU7x a device is one core, half a chip. On v5e, v5p and v6e it is one chip.

* `peak_flops`: the "key specifications" of https://docs.cloud.google.com/tpu/docs/NAME (v2 ... tpu7x), as
  of November 2026, divided by the devices of a chip.
* `hbm_bytes`: the memory that a program may use: the "available HBM" in the compiler's out-of-memory error (libtpu
  0.0.51). It is a quarter to a half GiB below the page's number. A test compares it with the compiler.
* `clock_hz` of v2, v3, v4: Jouppi et al. 2023 (arXiv 2304.01433), table 4. For the others: peak divided by the FLOPs of
  one cycle. These are 2 x 4 x 128^2 (v5e), 2 x 8 x 128^2 (v5p) and 2 x 4 x 256^2 (v6e, TPU7x). The page has two 256^2
  units for v6e, but libtpu's estimate for a large product is 1.6 times the speed of two. No source gives its clock.
"""

import dataclasses
import re

from t5prep.errors import UsageError, did_you_mean

GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Chip:
    """Describe a kind of TPU, with numbers per device (see the module).

    `topology` is libtpu's name of the smallest slice that it can describe. `counts_cores` is True if the number in a type
    such as `v3-8` counts TensorCores, and False if it counts chips.
    """

    name: str
    topology: str
    hbm_bytes: int
    peak_flops: float
    clock_hz: float
    devices_per_chip: int
    counts_cores: bool
    note: str = ""


CHIPS = {
    chip.name: chip
    for chip in (
        Chip("v2", "v2:2x2", int(7.48 * GIB), 22.5e12, 0.70e9, 2, True),
        Chip("v3", "v3:2x2", int(15.48 * GIB), 61.5e12, 0.94e9, 2, True),
        Chip("v4", "v4:2x2x1", int(15.25 * GIB), 137.5e12, 1.05e9, 2, True),
        Chip("v5e", "v5e:1x1", int(15.75 * GIB), 197e12, 1.50e9, 1, False),
        Chip("v5p", "v5p:2x2x1", int(95.73 * GIB), 459e12, 1.75e9, 1, True),
        Chip("v6e", "v6e:1x1", int(31.24 * GIB), 918e12, 1.75e9, 1, False),
        Chip(
            "tpu7x",
            "tpu7x:2x2x1",
            int(94.74 * GIB),
            1153.5e12,
            2.20e9,
            2,
            True,
            note="Google does not support TensorFlow on TPU7x (docs.cloud.google.com/tpu/docs/tpu7x).",
        ),
    )
}
# Other names of these chips, in `gcloud`, in Google's consoles and in common use → the name in CHIPS.
_ALIASES = {"v5litepod": "v5e", "v5lite": "v5e", "v6": "v6e", "trillium": "v6e", "v7x": "tpu7x", "ironwood": "tpu7x"}


@dataclasses.dataclass(frozen=True)
class Tpu:
    """Describe a TPU type: `v3-8` is four v3 chips, which are eight devices."""

    name: str
    chip: Chip
    devices: int

    @property
    def chips(self) -> int:
        """Return the number of chips, which are priced by the hour."""
        return -(-self.devices // self.chip.devices_per_chip)


def parse(name: str) -> Tpu:
    """Return the TPU of the type `name`. A name without a number is one device.

    Raises UsageError for a chip or a size that does not exist.

    >>> parse("v2-8").chip.name, parse("v2-8").devices, parse("v2-8").chips
    ('v2', 8, 4)
    >>> parse("v5litepod-8").devices, parse("v5p-8").devices, parse("v6e").devices
    (8, 4, 1)
    """
    match = re.fullmatch(r"(.*?)(?:-(\d{1,9}))?", name.strip().lower())
    assert match is not None  # the pattern takes any string
    kind = _ALIASES.get(match[1], match[1])
    if kind not in CHIPS:
        known_names = ", ".join(f"{c}-8" for c in CHIPS)
        raise UsageError(
            f'"{name}" is not a TPU type that t5prep knows.{did_you_mean(kind, CHIPS)} Use a type such as '
            f"{known_names} (v5litepod-8 is v5e-8).",
            code="device.unknown-type",
        )
    chip = CHIPS[kind]
    if match[2] is None:
        return Tpu(name, chip, devices=1)
    number = int(match[2])
    cores_per_device = 2 if chip.counts_cores and chip.devices_per_chip == 1 else 1
    if number < 1 or number % cores_per_device:
        raise UsageError(
            f'There is no TPU "{name}", because {kind} comes in even numbers of cores. Use a size such as {kind}-8.',
            code="device.invalid-size",
        )
    if chip.topology.count("x") == 1 and number & (number - 1):  # 2D slices only: 3D slices may have 3 x 4 x 4 chips
        raise UsageError(
            f'There is no TPU "{name}", because {kind} comes in powers of two. Use a size such as {kind}-8.',
            code="device.invalid-size",
        )
    return Tpu(name, chip, devices=number // cores_per_device)
