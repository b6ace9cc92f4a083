"""Read as a seekable file what can be asked for in ranges: an object of a bucket, a file of a web server, a part of a file."""

import io


class RangedFile(io.RawIOBase):
    """Read a file of `size` bytes. A subclass says how a range of it is read, and what that raises."""

    def __init__(self, size: int) -> None:
        self._size, self._at = size, 0

    def range(self, begin: int, size: int) -> bytes:
        """Return bytes from `begin` on, at least one and at most `size`, which all lie inside the file."""
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
        """Set the position in the file, and return it."""
        self._at = max(0, offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence])
        return self._at

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Read the next bytes, as many as fit into the buffer, and return how many these are."""
        size = min(len(buffer), self._size - self._at)
        if size <= 0:
            return 0
        data = self.range(self._at, size)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
