"""The training step of transformers 4.57's Flax T5 with optax' Adafactor, as a module for the TPU compiler.

Run in an environment of its own (see bench_tpu): python peer_flax.py SHAPE.json OUT.pb ROWS INPUT_LENGTH TARGET_LENGTH
"""

import json
import os
import sys

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import optax
from transformers import FlaxT5ForConditionalGeneration, T5Config


def main() -> None:
    shape, out = sys.argv[1:3]
    rows, inputs, targets = map(int, sys.argv[3:])
    with open(shape) as file:
        config = T5Config(**json.load(file))
    model = FlaxT5ForConditionalGeneration(config, dtype=jnp.bfloat16, _do_init=False)
    optimizer = optax.adafactor(1e-3)

    def step(weights, slots, batch, key):
        def loss_of(weights):
            start = jnp.zeros_like(batch["labels"][:, :1])
            decoder_ids = jnp.maximum(jnp.concatenate([start, batch["labels"][:, :-1]], axis=1), 0)
            logits = model(
                batch["input_ids"],
                attention_mask=batch["attention_mask"],
                decoder_input_ids=decoder_ids,
                params=weights,
                dropout_rng=key,
                train=True,
            ).logits.astype(jnp.float32)
            wanted = batch["labels"] >= 0
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, jnp.maximum(batch["labels"], 0))
            return jnp.where(wanted, losses, 0.0).sum() / wanted.sum()

        loss, gradients = jax.value_and_grad(loss_of)(weights)
        updates, slots = optimizer.update(gradients, slots, weights)
        return optax.apply_updates(weights, updates), slots, loss

    weights = jax.eval_shape(lambda key: model.init_weights(key, (1, 1)), jax.random.key(0))
    slots = jax.eval_shape(optimizer.init, weights)
    batch = {
        "input_ids": jax.ShapeDtypeStruct((rows, inputs), jnp.int32),
        "attention_mask": jax.ShapeDtypeStruct((rows, inputs), jnp.int32),
        "labels": jax.ShapeDtypeStruct((rows, targets), jnp.int32),
    }
    # TPU users of Flax switch to the hardware's generator (jax_default_prng_impl): dropout is not held against it.
    key = jax.eval_shape(lambda: jax.random.key(0, impl="unsafe_rbg"))
    lowered = jax.jit(step, donate_argnums=(0, 1)).lower(weights, slots, batch, key)
    with open(out, "wb") as file:
        file.write(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())


main()
