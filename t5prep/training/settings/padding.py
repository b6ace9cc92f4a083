"""Say by which ids a dataset's padding and the second texts of its pairs are known."""

import dataclasses

from t5prep.dataset.manifest import Manifest
from t5prep.training.model.architecture import Config


@dataclasses.dataclass(frozen=True)
class Padding:
    """The ids from which the mask of a batch is computed (`model.token_mask`).

    `separator` is the id after each text in a dataset of other targets than texts, whose inputs may be pairs; else None.
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
        """Return the ids for a model whose dataset is not known: a step with another separator costs the same."""
        return cls(shape.pad_token_id, 1 if shape.classes else None)


OF_T5 = Padding()
