"""Read by ranges, as a seekable file: an object of a bucket, a file of a web server, or a part of a file."""

import io


class RangedFile(io.RawIOBase):
    """Read a file of `size` bytes. A subclass defines `range`, and thereby the exceptions of reading."""

    def __init__(self, size: int) -> None:
        self._size, self._at = size, 0

    def range(self, begin: int, size: int) -> bytes:
        """Return 1 to `size` bytes from `begin` on. Callers pass only ranges inside the file."""
        raise NotImplementedError

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position of the next byte."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position as `io.RawIOBase.seek` does, and return it."""
        self._at = max(0, offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence])
        return self._at

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Read the next bytes into `buffer`, and return their number; 0 at the end of the file."""
        size = min(len(buffer), self._size - self._at)
        if size <= 0:
            return 0
        data = self.range(self._at, size)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
