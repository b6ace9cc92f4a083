"""Answer for all layers of a step by compiling a few: cycles grow in a line with the layers, and memory is planned for all.

The compiled models have the weights of all layers, so that the update, the gradients and their memory are those of the whole
model; only forward and backward pass take the first layers alone (`ModelConfig.computed_layers`). Models that have only a few
layers are too fast: their stacked gradients fit into a chip's fast memory, and those of twelve layers do not. The same happens
to three layers of a deep model, so more of its layers are computed. Memory does not grow in a line, but the compiler plans it
for all layers in seconds: nearly all of its time goes into code. docs/decisions/011 has these figures beside those of models
that were compiled whole.
"""

import concurrent.futures
import dataclasses
import os
from collections.abc import Callable
from typing import Any

from t5prep.planning.compiled import Compiled
from t5prep.planning.question import Answer, Question, ask, recall
from t5prep.training.model.architecture import ModelConfig

Ask = Callable[[Question], Answer]
Say = Callable[[str], None]
Layers = tuple[int, int]  # of the encoder, of the decoder

# The computed layers of each kind in the smallest model. With fewer the most memory is needed by the logits or by the update,
# and not where all layers' activations are kept.
MIN_COMPUTED_LAYERS = 3
# From this many layers on, a quarter and a third of them are computed.
DEEP = 16
# Between these shares of a device's memory the compiler may save memory at the cost of time: there all layers are compiled.
NEAR = (0.9, 1.3)
_LINEAR = (
    *("hbm_bytes", "argument_bytes", "temp_bytes", "program_bytes", "flops", "accessed_bytes", "estimated_cycles"),
    *("exchanged_bytes", "weight_bytes", "slot_bytes"),
)


def estimate(question: Question, *, asking: Ask = ask, say: Say | None = None) -> Answer:
    """Return the answer by small models, or by all layers where that is as quick or where the memory is nearly full.

    `say` is told what is being compiled. Raises what `question.ask` raises.
    """
    if cached_answer := recall(question):
        return cached_answer
    if not _worthwhile(question):
        return asking(question)
    answer = extended(question, asking=asking, say=say)
    share = answer.compiled.hbm_bytes / question.tpu.chip.hbm_bytes
    if not NEAR[0] < share < NEAR[1]:
        return answer
    if say:
        say(f"About {share:.0%} of a device's memory: compiling all layers, to be sure.")
    return asking(question)


def extended(question: Question, *, asking: Ask = ask, say: Say | None = None) -> Answer:
    """Return the answer that steps of a few layers of each kind give for all layers. Raises what `question.ask` raises."""
    if not _worthwhile(question):
        return asking(question)
    layers, needed = _layers(question), _needed(question)
    if say:
        models = " and ".join(f"{encoder} + {decoder}" for encoder, decoder in _models(layers))
        say(f"Compiling it with {models} of its {layers[0]} + {layers[1]} layers (--exact compiles all).")
    # Each compilation is a process of its own that uses one core for most of its time. The longest one begins first.
    with concurrent.futures.ThreadPoolExecutor(max_workers=min(len(needed), os.cpu_count() or 1)) as pool:
        jobs = {pool.submit(asking, needed[part]): part for part in needed}
        answers: dict[Layers, Answer] = {}
        for job in concurrent.futures.as_completed(jobs):
            answers[jobs[job]] = job.result()
            if say and len(answers) < len(jobs):
                say(f"{len(answers)} of {len(jobs)} are compiled.")
    return _extend(question, answers)


def planned(question: Question, *, like: Answer, asking: Ask = ask) -> Answer:
    """Return the memory of a step that differs from that of an answer in its rows, by planning it; the rest is that answer's.

    That takes seconds. Where all layers are compiled quickly they are, and the answer is of the step itself.
    """
    if not _worthwhile(question):
        return asking(question)
    memory = asking(dataclasses.replace(question, memory_alone=True)).compiled
    state = like.compiled.weight_bytes + like.compiled.slot_bytes + like.compiled.program_bytes
    needed = state + memory.temp_bytes if memory.fits else memory.hbm_bytes
    fits = memory.fits and needed <= question.tpu.chip.hbm_bytes
    compiled = dataclasses.replace(like.compiled, fits=fits, hbm_bytes=needed, temp_bytes=memory.temp_bytes)
    return Answer(question, compiled, extended=True)


def recalled(question: Question) -> Answer | None:
    """Return the answer that earlier compilations give, else None; compile nothing."""
    if (cached_answer := recall(question)) or not _worthwhile(question):
        return cached_answer
    answers = {layers: recall(needed) for layers, needed in _needed(question).items()}
    kept_answers = {layers: answer for layers, answer in answers.items() if answer}
    return _extend(question, kept_answers) if len(kept_answers) == len(answers) else None


def _worthwhile(question: Question) -> bool:
    """Check whether small models are compiled sooner: not with remat, whose layers are one loop in any number.

    Only a T5 of two stacks is extended. A model of one stack is compiled whole, which is quick. So is a step with shard=auto,
    because a few layers may fit and all may not.
    """
    shape, settings = question.shape, question.settings
    if (
        not isinstance(shape, ModelConfig)
        or shape.classes
        or question.embed
        or settings.remat
        or settings.shard == "auto"
    ):
        return False
    layers = _layers(question)
    return min(layers) > MIN_COMPUTED_LAYERS and max(layers) > MIN_COMPUTED_LAYERS + 1


def _layers(question: Question) -> Layers:
    """Return the layers of the question's T5: of its encoder and of its decoder."""
    assert isinstance(question.shape, ModelConfig)
    return question.shape.num_layers, question.shape.num_decoder_layers


def _models(layers: Layers) -> list[Layers]:
    """Return the layers of the models to compile: two if both stacks have as many layers, else three.

    >>> _models((12, 12)), _models((24, 24)), _models((18, 6))
    ([(3, 3), (4, 4)], [(6, 6), (8, 8)], [(3, 3), (4, 4), (4, 3)])
    """
    least = min(layers)
    few_layers, more_layers = (
        (least // 4, least // 3) if least >= DEEP else (MIN_COMPUTED_LAYERS, MIN_COMPUTED_LAYERS + 1)
    )
    needed = [(few_layers, few_layers), (more_layers, more_layers)]
    if layers[0] != layers[1]:
        needed.append((more_layers, few_layers) if layers[0] > layers[1] else (few_layers, more_layers))
    return needed


def _needed(question: Question) -> dict[Layers, Question]:
    """Return the questions to ask, by the layers that they compute; that of all layers is for the memory alone.

    The one that is answered last comes first.
    """
    layers, needed = _layers(question), dict[Layers, Question]()
    assert isinstance(question.shape, ModelConfig)
    for model_layers in sorted(_models(layers), reverse=True):
        shape = dataclasses.replace(
            question.shape, computed_layers=model_layers[0], computed_decoder_layers=model_layers[1]
        )
        needed[model_layers] = dataclasses.replace(question, shape=shape)
    return needed | {layers: dataclasses.replace(question, memory_alone=True)}


def _extend(question: Question, answers: dict[Layers, Answer]) -> Answer:
    """Return the answer for all layers: `both` more of each kind, and then `longer` ones of the deeper stack."""
    layers = _layers(question)
    models = _models(layers)
    smaller_model, larger_model, *_ = (answers[model].compiled for model in models)
    of_longer = answers[models[-1]].compiled if len(models) > 2 else smaller_model
    step = models[1][0] - models[0][0]
    both, longer = min(layers) - models[0][0], max(layers) - min(layers)

    def grown(smallest: int, of_more: int, of_one_longer: int) -> int:
        return smallest + (both * (of_more - smallest) + longer * (of_one_longer - smallest)) // step

    figures: dict[str, Any] = {
        name: grown(getattr(smaller_model, name), getattr(larger_model, name), getattr(of_longer, name))
        for name in _LINEAR
    }
    kinds = [model.by_operation for model in (smaller_model, larger_model, of_longer)]
    cycles = {kind: grown(*(model.get(kind, 0) for model in kinds)) for kind in {**kinds[0], **kinds[1], **kinds[2]}}
    executed = {kind: number for kind, number in cycles.items() if number > 0}
    planned = answers[layers].compiled
    if not all(answer.fits for answer in answers.values()):
        # Fewer layers do not fit, or all do not. Of such a step the compiler says only the bytes.
        needed = max(figures["hbm_bytes"], larger_model.hbm_bytes) if planned.fits else planned.hbm_bytes
        program = figures["program_bytes"]
        compiled = dataclasses.replace(larger_model, fits=False, hbm_bytes=needed, program_bytes=program)
        return Answer(question, compiled, extended=True)
    figures["hbm_bytes"] += planned.temp_bytes - figures["temp_bytes"]
    figures["temp_bytes"] = planned.temp_bytes
    fits = figures["hbm_bytes"] <= question.tpu.chip.hbm_bytes
    return Answer(
        question, Compiled(fits=fits, loops=smaller_model.loops, by_operation=executed, **figures), extended=True
    )
