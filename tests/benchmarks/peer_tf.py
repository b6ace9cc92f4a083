"""The training step of transformers 4.57's TensorFlow T5 with tf-keras' Adafactor, as a module for the TPU compiler.

Run in an environment of its own (see bench_tpu): python peer_tf.py SHAPE.json OUT.pb ROWS INPUT_LENGTH TARGET_LENGTH
"""

import json
import os
import sys

os.environ.update(TF_USE_LEGACY_KERAS="1", CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="3")

import tensorflow as tf
import tf_keras
from transformers import T5Config, TFT5ForConditionalGeneration


def main() -> None:
    shape, out = sys.argv[1:3]
    rows, inputs, targets = map(int, sys.argv[3:])
    with open(shape) as file:
        config = T5Config(**json.load(file))
    tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
    model = TFT5ForConditionalGeneration(config)
    model(input_ids=tf.ones([1, 8], tf.int32), labels=tf.ones([1, 4], tf.int32))
    optimizer = tf_keras.optimizers.Adafactor(1e-3)
    optimizer.build(model.trainable_variables)

    def step(input_ids, attention_mask, labels):
        with tf.GradientTape() as tape:
            logits = model(
                input_ids=input_ids,
                attention_mask=attention_mask,
                decoder_input_ids=tf.maximum(tf.pad(labels[:, :-1], [[0, 0], [1, 0]]), 0),
                training=True,
            ).logits
            wanted = labels >= 0
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.maximum(labels, 0), tf.cast(logits, tf.float32))
            loss = tf.reduce_sum(tf.where(wanted, losses, 0.0)) / tf.reduce_sum(tf.cast(wanted, tf.float32))
        # Adafactor's own way of the embedding's sparse gradient is a loop over tokens that no TPU user would keep.
        gradients = [tf.convert_to_tensor(one) for one in tape.gradient(loss, model.trainable_variables)]
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    specs = [tf.TensorSpec([rows, length], tf.int32) for length in (inputs, inputs, targets)]
    program = tf.function(step, jit_compile=True)
    with open(out, "wb") as file:
        file.write(program.experimental_get_compiler_ir(*specs)(stage="hlo_serialized"))


main()
