"""Limit how much a compressed file may unpack to, as a protection against decompression bombs."""

import dataclasses
import os

from t5prep.errors import SourceError, UsageError

MAX_BYTES = "T5PREP_MAX_UNPACKED_BYTES"
MAX_RATIO = "T5PREP_MAX_UNPACKED_RATIO"


@dataclasses.dataclass(frozen=True)
class Limits:
    """Hold `max_bytes` of one unpacked file and `max_ratio` of unpacked to packed bytes.

    Files below `any_ratio_below` unpacked bytes may have any ratio. Text packs 3 to 20 times; a ratio above 200 over
    more than 64 MiB is not text that anyone would train on.
    """

    max_bytes: int = 64 << 30
    max_ratio: float = 200.0
    any_ratio_below: int = 64 << 20

    def allowed(self, packed: int) -> int:
        """Return how many bytes `packed` bytes may unpack to at most."""
        return min(self.max_bytes, max(self.any_ratio_below, int(self.max_ratio * packed)))

    def check(self, name: str, *, packed: int, unpacked: int) -> None:
        """Raise SourceError when `unpacked` is more than `packed` bytes may unpack to."""
        if unpacked <= self.allowed(packed):
            return
        if unpacked > self.max_bytes:
            raise SourceError(
                f"{name} unpacks to more than {self.max_bytes:,} bytes. "
                f"If you trust it, raise the limit: export {MAX_BYTES}={max(unpacked, 2 * self.max_bytes)}"
            )
        enough = int(2 * max(unpacked / max(packed, 1), self.max_ratio))
        raise SourceError(
            f"{name} unpacks to more than {self.max_ratio:g} times its {packed:,} bytes, as a decompression bomb does. "
            f"If you trust it, raise the limit: export {MAX_RATIO}={enough}"
        )


def limits() -> Limits:
    """Return the limits: the defaults, or those of the environment.

    Raises UsageError where a variable holds no number.
    """
    return Limits(max_bytes=int(_number(MAX_BYTES, Limits.max_bytes)), max_ratio=_number(MAX_RATIO, Limits.max_ratio))


def _number(variable: str, default: float) -> float:
    value = os.environ.get(variable, "")
    try:
        number = float(value) if value else float(default)
    except ValueError:
        number = -1.0
    if not 0 < number < float("inf"):
        raise UsageError(f'{variable} is "{value}", which is not a number above 0. Unset it, or set it to {default:g}.')
    return number
