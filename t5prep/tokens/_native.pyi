"""Declare the types of the encoder in C (native/module.c)."""

import numpy as np

class Unigram:
    def __new__(cls, model: bytes) -> Unigram: ...
    def encode(self, data: object, offsets: np.ndarray) -> tuple[bytes, bytes]: ...

def write_records(
    ids: bytes,
    id_starts: np.ndarray,
    inputs: np.ndarray,
    input_starts: np.ndarray,
    labels: np.ndarray,
    label_starts: np.ndarray,
    order: np.ndarray,
    lengths: tuple[int, int],
    pads: tuple[int, int],
    masks: bool,
) -> tuple[bytes, bytes]: ...
def copy_lists(
    source: np.ndarray, begins: np.ndarray, target: np.ndarray, places: np.ndarray, lengths: np.ndarray
) -> None: ...
