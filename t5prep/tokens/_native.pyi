"""The encoder in C; native/module.c."""

import numpy as np

class Unigram:
    def __new__(cls, model: bytes) -> Unigram: ...
    def encode(self, data: object, offsets: np.ndarray) -> tuple[bytes, bytes]: ...
