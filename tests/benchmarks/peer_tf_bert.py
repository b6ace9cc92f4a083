"""The training step of transformers 4.57's TensorFlow BERT with tf-keras' AdamW, as a module for the TPU compiler.

Run in an environment of its own (see bench_tpu): python peer_tf_bert.py SHAPE.json OUT.pb ROWS INPUT_LENGTH 1
"""

import json
import os
import sys

os.environ.update(TF_USE_LEGACY_KERAS="1", CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="3")

import tensorflow as tf
import tf_keras
from transformers import BertConfig, TFBertForSequenceClassification


def main() -> None:
    shape, out = sys.argv[1:3]
    rows, inputs = map(int, sys.argv[3:5])
    with open(shape) as file:
        config = BertConfig(**json.load(file))
    tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
    model = TFBertForSequenceClassification(config)
    model(input_ids=tf.ones([1, 8], tf.int32))
    optimizer = tf_keras.optimizers.AdamW(5e-5)
    optimizer.build(model.trainable_variables)
    optimizer._iterations = tf.Variable(0, dtype=tf.int32)  # the counter; jax would hand an int64 over as an int32

    def step(input_ids, attention_mask, token_type_ids, labels):
        with tf.GradientTape() as tape:
            logits = model(
                input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids, training=True
            ).logits
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.cast(logits, tf.float32))
            loss = tf.reduce_mean(losses)
        gradients = [tf.convert_to_tensor(one) for one in tape.gradient(loss, model.trainable_variables)]
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    specs = [tf.TensorSpec([rows, inputs], tf.int32)] * 3 + [tf.TensorSpec([rows], tf.int32)]
    program = tf.function(step, jit_compile=True)
    with open(out, "wb") as file:
        file.write(program.experimental_get_compiler_ir(*specs)(stage="hlo_serialized"))


main()
