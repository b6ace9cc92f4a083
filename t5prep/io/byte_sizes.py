"""Format numbers of bytes for people, and parse sizes such as `512MB`."""

import re

from t5prep.errors import UsageError

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def text(size: float) -> str:
    """Return a number of bytes in decimal units.

    >>> text(999), text(1_536_000)
    ('999 bytes', '1.5 MB')
    """
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def parse(text: str, *, name: str) -> int:
    """Return the number of bytes that `text` names: `512MB`, `2 GiB`, `1.5g` or a plain number.

    `name` is the option, for the UsageError that an invalid `text` raises.

    >>> parse("2GiB", name="--memory"), parse("1.5 GB", name="--memory")
    (2147483648, 1500000000)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", text, re.IGNORECASE)
    if not match:
        raise UsageError(
            f'{name} "{text}" is not a number of bytes. Use a size such as 512MB or 2GiB.', code="option.malformed"
        )
    number, unit, binary = match[1], match[2].lower(), match[3]
    scale = 1024 ** ("kmgt".index(unit) + 1) if binary and unit else _UNITS[unit]
    return int(float(number) * scale)


def of_compiler(number: str, unit: str) -> int:
    """Return in bytes a size that XLA prints: there, K, M, G and T are powers of 1024.

    >>> of_compiler("1.5", "K"), of_compiler("7", "")
    (1536, 7)
    """
    return int(float(number) * 1024 ** ("", "K", "M", "G", "T").index(unit))
