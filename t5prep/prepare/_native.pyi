"""Declare the types of what preparing does in C (native/module.c)."""

import numpy as np

def word_hashes(
    data: np.ndarray, begins: np.ndarray, hashes: np.ndarray, counts: np.ndarray, long_words: np.ndarray
) -> tuple[int, int]: ...
def run_hashes(
    hashes: np.ndarray, counts: np.ndarray, factors: np.ndarray, runs: np.ndarray, begins: np.ndarray
) -> int: ...
