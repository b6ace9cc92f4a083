"""How much a compressed file may unpack to: what stands between a decompression bomb and the disk of a worker."""

import dataclasses
import os

from t5prep.errors import SourceError, UsageError

MAX_BYTES = "T5PREP_MAX_UNPACKED_BYTES"
MAX_RATIO = "T5PREP_MAX_UNPACKED_RATIO"


@dataclasses.dataclass(frozen=True)
class Limits:
    """`max_bytes` of one unpacked file, `max_ratio` of unpacked to packed bytes; small files may have any ratio.

    Text packs 3 to 20 times; a ratio above 200 over more than 64 MiB is no text that anyone would train on.
    """

    max_bytes: int = 64 << 30
    max_ratio: float = 200.0
    any_ratio_below: int = 64 << 20

    def allowed(self, packed: int) -> int:
        """The most bytes that `packed` bytes may unpack to."""
        return min(self.max_bytes, max(self.any_ratio_below, int(self.max_ratio * packed)))

    def check(self, name: str, *, packed: int, unpacked: int) -> None:
        """Raises SourceError when `unpacked` is more than is allowed for `packed` bytes."""
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
    """The limits in force: the defaults, or what the environment says. Raises UsageError when it says no number."""
    return Limits(max_bytes=int(_number(MAX_BYTES, Limits.max_bytes)), max_ratio=_number(MAX_RATIO, Limits.max_ratio))


def _number(variable: str, default: float) -> float:
    said = os.environ.get(variable, "")
    try:
        number = float(said) if said else float(default)
    except ValueError:
        number = -1.0
    if not 0 < number < float("inf"):
        raise UsageError(f'{variable} is "{said}", which is not a number above 0. Unset it, or set it to {default:g}.')
    return number
