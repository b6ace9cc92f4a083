"""Extrapolate the cycles of a step from steps that compute few of its layers, and plan the memory of all layers.

Compiling all layers takes too long: 19 minutes for T5-large. Cycles grow linearly with the computed layers. The compiled
steps have the weights of all layers, so the update and the gradients are those of the complete model. Only the forward and
backward pass are limited to the first layers (`ModelConfig.computed_layers`). A model with few layers in total would be too
fast: its stacked gradients fit into the chip's fast memory. For the same reason, more layers of a deep model are computed.

Layers are unrolled (docs/decisions/002-unroll-layers.md). If they became one loop, a whole program would compile in seconds,
and this module would have no purpose.

Memory does not grow linearly, but the compiler plans it for all layers in seconds, before it generates code.
docs/decisions/011-extend-cycles-from-few-layers.md compares these estimates with complete compilations.
"""

import concurrent.futures
import dataclasses
import os
from collections.abc import Callable
from typing import Any

from t5prep.planning import questions
from t5prep.planning.compiled import Compiled
from t5prep.planning.questions import Answer, Question, recall
from t5prep.training.model.architecture import ModelConfig

Say = Callable[[str], None]  # prints a sentence about the progress
Layers = tuple[int, int]  # layers of the encoder, layers of the decoder

# Computed layers of each stack in the smallest compiled step. With fewer, memory peaks at the logits or at the update, and
# not where the activations of all layers are stored.
MIN_COMPUTED_LAYERS = 3
# From this many layers on, a quarter of the layers are computed in one step, and a third in another.
DEEP = 16
# Between these shares of a device's memory, the compiler may trade time for memory. Then all layers are compiled.
NEAR = (0.9, 1.3)
# The figures that grow linearly with the layers.
_LINEAR = (
    *("hbm_bytes", "argument_bytes", "temp_bytes", "program_bytes", "flops", "accessed_bytes", "estimated_cycles"),
    *("exchanged_bytes", "weight_bytes", "slot_bytes"),
)


def estimate(question: Question, *, say: Say | None = None) -> Answer:
    """Return the extended answer to `question`, or the exact one if it is as quick or if the memory is nearly full (NEAR).

    `say` prints a sentence about what is being compiled. Raises the errors of `question.ask`.
    """
    if cached_answer := recall(question):
        return cached_answer
    if not _worthwhile(question):
        return questions.ask(question)
    answer = extended(question, say=say)
    share = answer.compiled.hbm_bytes / question.tpu.chip.hbm_bytes
    if not NEAR[0] < share < NEAR[1]:
        return answer
    if say:
        say(f"About {share:.0%} of a device's memory: compiling all layers, to be sure.")
    return questions.ask(question)


def extended(question: Question, *, say: Say | None = None) -> Answer:
    """Return the answer for all layers, extrapolated from steps that compute few layers. Raises the errors of `question.ask`."""
    if not _worthwhile(question):
        return questions.ask(question)
    layers, needed = _layers(question), _needed(question)
    if say:
        models = " and ".join(f"{encoder} + {decoder}" for encoder, decoder in _models(layers))
        say(f"Compiling it with {models} of its {layers[0]} + {layers[1]} layers (--exact compiles all).")
    # Each compilation is a separate process that uses one core for most of its time.
    with concurrent.futures.ThreadPoolExecutor(max_workers=min(len(needed), os.cpu_count() or 1)) as pool:
        jobs = {pool.submit(questions.ask, needed[part]): part for part in needed}
        answers: dict[Layers, Answer] = {}
        for job in concurrent.futures.as_completed(jobs):
            answers[jobs[job]] = job.result()
            if say and len(answers) < len(jobs):
                say(f"{len(answers)} of {len(jobs)} are compiled.")
    return _extend(question, answers)


def planned(question: Question, *, like: Answer) -> Answer:
    """Return the answer `like` with the memory of `question`, a step with another number of rows.

    Memory alone is planned, which takes seconds, and all other figures are those of `like`. If compiling all layers is as
    quick, the answer is an exact one.
    """
    if not _worthwhile(question):
        return questions.ask(question)
    memory = questions.ask(dataclasses.replace(question, memory_alone=True)).compiled
    state = like.compiled.weight_bytes + like.compiled.slot_bytes + like.compiled.program_bytes
    needed = state + memory.temp_bytes if memory.fits else memory.hbm_bytes
    fits = memory.fits and needed <= question.tpu.chip.hbm_bytes
    compiled = dataclasses.replace(like.compiled, fits=fits, hbm_bytes=needed, temp_bytes=memory.temp_bytes)
    return Answer(question, compiled, extended=True)


def recalled(question: Question) -> Answer | None:
    """Return the answer from cached compilations, exact or extended; None if one is missing. Compile nothing."""
    if (cached_answer := recall(question)) or not _worthwhile(question):
        return cached_answer
    answers = {layers: recall(needed) for layers, needed in _needed(question).items()}
    cached_answers = {layers: answer for layers, answer in answers.items() if answer}
    return _extend(question, cached_answers) if len(cached_answers) == len(answers) else None


def _worthwhile(question: Question) -> bool:
    """Check whether extending is quicker than compiling all layers.

    It is not with remat, where all layers are one loop. A model of one stack compiles quickly, so only a T5 is extended.
    With shard=auto all layers are compiled, because a few layers may fit where all do not.
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
    """Return the layers of the T5 of `question`."""
    assert isinstance(question.shape, ModelConfig)
    return question.shape.num_layers, question.shape.num_decoder_layers


def _models(layers: Layers) -> list[Layers]:
    """Return the computed layers of the steps to compile, given the layers of the model.

    These are two steps. If one stack is deeper, a third step is the first one with more layers in that stack alone.

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
    """Return the questions to ask, by their computed layers. The question with all layers is for the memory alone.

    The order is that of starting them in parallel: the longest compilation comes first.
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
    """Return the answer for all layers, extrapolated from the `answers` to the questions of `_needed`.

    The figures start at those of the smallest step, and grow in two parts. `both_added` layers are added to both stacks, and
    `deeper_added` layers to the deeper stack alone.
    """
    layers = _layers(question)
    models = _models(layers)
    smaller_model, larger_model, *_ = (answers[model].compiled for model in models)
    # The third step, which has more layers than the smallest step in the deeper stack alone.
    deeper_model = answers[models[-1]].compiled if len(models) > 2 else smaller_model
    step = models[1][0] - models[0][0]
    both_added, deeper_added = min(layers) - models[0][0], max(layers) - min(layers)

    def grown(smaller: int, larger: int, deeper: int) -> int:
        # `step` is the difference in layers between the steps, so each quotient is the cost of one layer.
        return smaller + (both_added * (larger - smaller) + deeper_added * (deeper - smaller)) // step

    figures: dict[str, Any] = {
        name: grown(getattr(smaller_model, name), getattr(larger_model, name), getattr(deeper_model, name))
        for name in _LINEAR
    }
    kinds = [model.by_operation for model in (smaller_model, larger_model, deeper_model)]
    cycles = {kind: grown(*(model.get(kind, 0) for model in kinds)) for kind in {**kinds[0], **kinds[1], **kinds[2]}}
    executed = {kind: number for kind, number in cycles.items() if number > 0}
    planned = answers[layers].compiled
    if not all(answer.fits for answer in answers.values()):
        # A step with few layers, or the plan of all layers, does not fit. For such a step, the compiler tells only its bytes.
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
