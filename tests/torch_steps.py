"""Ten steps of PyTorch's AdamW on one batch: the reference of tests/adamw_steps.py, for the programs tests/torch_*.py."""

from collections.abc import Callable
from typing import Any

import numpy as np

STEPS, RATE, DECAY = 10, 1e-3, 0.01


def train(model: Any, loss: Callable[[], Any]) -> dict[str, np.ndarray]:
    """Train, and return `losses` before each step and `gradient/NAME` of the first. Biases and norms do not decay."""
    import torch

    parameters = dict(model.named_parameters())
    exempt = {name for name, parameter in parameters.items() if parameter.dim() == 1 or "bias" in name}
    groups = [
        {"params": [parameter for name, parameter in parameters.items() if name not in exempt], "weight_decay": DECAY},
        {"params": [parameters[name] for name in exempt], "weight_decay": 0.0},
    ]
    optimizer, losses, gradients = torch.optim.AdamW(groups, lr=RATE), [], {}
    for _ in range(STEPS):
        optimizer.zero_grad()
        value = loss()
        value.backward()
        gradients = gradients or {
            f"gradient/{name}": parameter.grad.numpy().copy()
            for name, parameter in parameters.items()
            if parameter.grad is not None
        }
        optimizer.step()
        losses.append(value.item())
    return {"losses": np.array(losses), **gradients}
