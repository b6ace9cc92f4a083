"""Draw the random numbers by which tokens of an answer are drawn."""

import hashlib

import numpy as np

from t5prep.train.model.generation import Generation


def uniform(ids: np.ndarray, generation: Generation, *, pad_id: int) -> np.ndarray:
    """Return random float32[rows, answers, max_length] between 0 and 1, from the seed and each row's own tokens.

    So the draws of a row do not depend on the other rows or on the size of the batch. ids: int32[rows, length].
    """
    shape = (generation.answers, generation.max_length)
    drawn = np.empty([len(ids), *shape], np.float32)
    for row, own in enumerate(ids):
        tokens = own[own != pad_id].tobytes()
        key = hashlib.blake2b(tokens, digest_size=16, key=generation.seed.to_bytes(8, "big")).digest()
        generator = np.random.Generator(np.random.PCG64(int.from_bytes(key, "big")))
        drawn[row] = generator.random(shape, np.float32)
    return drawn
