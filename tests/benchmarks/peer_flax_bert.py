"""The training step of transformers 4.57's Flax BERT with optax' AdamW, as a module for the TPU compiler.

Run in an environment of its own (see bench_tpu): python peer_flax_bert.py SHAPE.json OUT.pb ROWS INPUT_LENGTH 1
"""

import json
import os
import sys

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import optax
from transformers import BertConfig, FlaxBertForSequenceClassification


def main() -> None:
    shape, out = sys.argv[1:3]
    rows, inputs = map(int, sys.argv[3:5])
    with open(shape) as file:
        config = BertConfig(**json.load(file))
    model = FlaxBertForSequenceClassification(config, dtype=jnp.bfloat16, _do_init=False)
    optimizer = optax.adamw(5e-5)

    def step(weights, slots, batch, key):
        def loss_of(weights):
            logits = model(
                batch["input_ids"],
                attention_mask=batch["attention_mask"],
                token_type_ids=batch["token_type_ids"],
                params=weights,
                dropout_rng=key,
                train=True,
            ).logits.astype(jnp.float32)
            return optax.softmax_cross_entropy_with_integer_labels(logits, batch["labels"]).mean()

        loss, gradients = jax.value_and_grad(loss_of)(weights)
        updates, slots = optimizer.update(gradients, slots, weights)
        return optax.apply_updates(weights, updates), slots, loss

    weights = jax.eval_shape(lambda key: model.init_weights(key, (1, 1)), jax.random.key(0))
    slots = jax.eval_shape(optimizer.init, weights)
    names = ("input_ids", "attention_mask", "token_type_ids")
    batch = {name: jax.ShapeDtypeStruct((rows, inputs), jnp.int32) for name in names}
    batch["labels"] = jax.ShapeDtypeStruct((rows,), jnp.int32)
    # TPU users of Flax switch to the hardware's generator (jax_default_prng_impl): dropout is not held against it.
    key = jax.eval_shape(lambda: jax.random.key(0, impl="unsafe_rbg"))
    lowered = jax.jit(step, donate_argnums=(0, 1)).lower(weights, slots, batch, key)
    with open(out, "wb") as file:
        file.write(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())


main()
