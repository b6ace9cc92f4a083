"""Find the tensors of a published encoder by the names of its classifier, as different checkpoints spell them."""

from collections.abc import Mapping

from t5prep.errors import UsageError
from t5prep.train.model.encoder_config import CLASS_NAMES, EncoderConfig
from t5prep.train.model.encoder_layout import encoder_layouts
from t5prep.train.published.stored import Stored

# The names of a norm's weight and bias in checkpoints that were converted from TensorFlow.
OLD_NAMES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


def classifier_tensors(config: EncoderConfig, tensors: Mapping[str, Stored], *, model: str) -> dict[str, Stored]:
    """Return the tensors of a classifier by name, without those of its head that the checkpoint lacks.

    A pretrained model has no classification head, and tensors of another head are ignored. `config` must have as many
    classes as the checkpoint's head. Raises UsageError where other tensors are missing.
    """
    prefix = f"{config.model_type}."
    bare = not any(name.startswith(prefix) for name in tensors)
    found = {}
    for name, stored in tensors.items():
        for old, new in OLD_NAMES.items():
            name = name.replace(old, new)
        heads = name.startswith(("classifier.", "pre_classifier."))
        found[f"{prefix}{name}" if bare and not heads else name] = stored
    layouts = encoder_layouts(config)
    head = {tensor for name, layout in layouts.items() if name.startswith("head.") for tensor in layout.tensors}
    wanted = {tensor for layout in layouts.values() for tensor in layout.tensors}
    if missing := sorted(wanted - head - found.keys()):
        raise UsageError(
            f'"{model}" lacks {missing[0]}: pass a checkpoint of {CLASS_NAMES[config.model_type]}, pretrained or with a '
            "classification head."
        )
    return {name: stored for name, stored in found.items() if name in wanted}
