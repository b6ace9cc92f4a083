"""Define the ids that mark padding and the second texts of pairs in a dataset."""

import dataclasses

from t5prep.dataset.manifest import Manifest
from t5prep.training.model.architecture import Config


@dataclasses.dataclass(frozen=True)
class Padding:
    """The ids from which the mask of a batch is computed (`forward.token_mask`).

    `separator` is the id after each text of an input, in a dataset for heads, whose inputs may be pairs; else None.
    """

    pad_id: int = 0
    separator: int | None = None

    @classmethod
    def of_dataset(cls, dataset: Manifest) -> "Padding":
        """Return the ids of a dataset's tokenizer."""
        separator = None if dataset.target.has_tokens else dataset.tokenizer.eos_id
        return cls(dataset.tokenizer.pad_id, separator)

    @classmethod
    def of_model(cls, shape: Config) -> "Padding":
        """Return ids for a model whose dataset is not known, as in `plan`. The cost of a step does not depend on the separator."""
        return cls(shape.pad_token_id, 1 if shape.classes else None)


OF_T5 = Padding()
