"""Format a plan as text for people, and as JSON for programs."""

import dataclasses
import math
from collections.abc import Sequence

from t5prep.io import byte_sizes
from t5prep.io.progress import number_of
from t5prep.json_values import JSON
from t5prep.planning.chips import GIB
from t5prep.planning.compiled import room_of, time_of
from t5prep.planning.lengths import Choice
from t5prep.planning.questions import Answer, Question
from t5prep.training.model.lora import parameters
from t5prep.training.model.weight_layout import weight_bytes
from t5prep.training.step.step import checkpoint_bytes, shape_of

# The errors are measured against --exact: docs/decisions/011-extend-cycles-from-few-layers.md.
EXTENDED = (
    "from steps that compute a few layers of each kind: within 3 % for t5-small, t5-base and t5-large; "
    "--exact computes all"
)
A_MODEL = "the compiler's own model of the chip, not a measurement"


@dataclasses.dataclass(frozen=True)
class Epoch:
    """Hold the estimated cost of a pass over a dataset. `price` is in the currency of --price; None without it."""

    rows: int
    steps: int
    hours: float
    price: float | None


def epoch(answer: Answer, *, rows: int, price: float | None) -> Epoch:
    """Return the cost of an epoch of `rows`. `price` is that of one chip for one hour."""
    question = answer.question
    steps = math.ceil(rows / question.settings.batch)
    hours = steps * answer.step_seconds / 3600
    return Epoch(rows, steps, hours, None if price is None else hours * question.tpu.chips * price)


def as_json(answer: Answer) -> dict[str, JSON]:
    """Return the answer as JSON values. Other programs rely on the first ones, so these keep their names and order."""
    question, compiled = answer.question, answer.compiled
    return {
        "fits": answer.fits,
        "hbm_bytes": compiled.hbm_bytes,
        "hbm_capacity_bytes": question.tpu.chip.hbm_bytes,
        "flops": answer.flops,
        "estimated_cycles": compiled.estimated_cycles,
        "estimated_step_seconds": answer.step_seconds,
        "estimated_share_of_peak": answer.share_of_peak,
        "accessed_bytes": compiled.accessed_bytes,
        "weight_bytes": compiled.weight_bytes,
        "optimizer_bytes": compiled.slot_bytes,
        "temporary_bytes": compiled.temp_bytes,
        "program_bytes": compiled.program_bytes,
        "exact": not answer.extended,
        "tpu": question.tpu.name,
        "devices": question.tpu.devices,
        "chips": question.tpu.chips,
        "shard": question.shard,
        "exchanged_bytes": compiled.exchanged_bytes,
        "batch": question.settings.batch,
        "accumulate": question.settings.accumulate,
        "remat": question.settings.remat,
        "input_length": question.input_length,
        "target_length": question.target_length,
        "packed": question.packed,
        "lora": question.settings.lora,
        "checkpoint_bytes": checkpoint_bytes(question.settings, question.shape),
    }


def lines(answer: Answer, *, model: str) -> list[str]:
    """Return the answer as lines of text. `model` is its name as the user typed it."""
    question, compiled, chip = answer.question, answer.compiled, answer.question.tpu.chip
    settings, tpu = question.settings, question.tpu
    options = ["vectors alone" if question.embed else settings.optimizer]
    options += ["bfloat16" if settings.dtype == "auto" else settings.dtype]
    options += [f"accumulate {settings.accumulate}"] if settings.accumulate > 1 else []
    options += ["remat"] if settings.remat else []
    options += ["packed"] if question.packed else []
    options += [f"lora {settings.lora}"] if settings.lora else []
    tokens = question.input_length if question.embed else f"{question.input_length} + {question.target_length}"
    text = [
        f"{model} on {tpu.name}: batch {settings.batch}, {number_of(question.rows, 'row')} on each of "
        f"{_devices(question)}; {tokens} tokens; " + ", ".join(options)
    ]
    room = room_of(compiled, chip)
    if not answer.fits:
        state = (compiled.weight_bytes + compiled.slot_bytes) / GIB
        text.append(f"  DOES NOT FIT  a device needs {room}; weights and optimizer are {state:.2f} GiB of it")
        return text + ([f"  note          {EXTENDED}"] if answer.extended else [])
    text += [
        f"  fits          {room}, on each device",
        f"    weights     {compiled.weight_bytes / GIB:6.2f} GiB",
        f"    optimizer   {compiled.slot_bytes / GIB:6.2f} GiB",
        f"    temporaries {compiled.temp_bytes / GIB:6.2f} GiB  activations and gradients",
        f"    program     {compiled.program_bytes / GIB:6.2f} GiB",
        f"  work          {answer.flops / 1e9:,.0f} GFLOP"
        + ("" if answer.looped else f" and {compiled.accessed_bytes / 1e9:,.1f} GB")
        + " on each device",
    ]
    if compiled.unread:
        text.append(f"  a step        of unknown time: {compiled.unread}")
    else:
        text += [
            f"  a step        {time_of(compiled, chip)}, "
            f"{answer.share_of_peak:.0%} of the chip's {chip.peak_flops / 1e12:.0f} TFLOP/s",
            f"                ({A_MODEL})",
        ]
    if compiled.exchanged_bytes:
        text.append(
            f"  exchange      {compiled.exchanged_bytes / 1e6:,.1f} MB that a device gets from others in a step; "
            "the compiler estimates no time for it"
        )
    if settings.lora:
        text.append(lora_line(question))
    if answer.extended:
        text.append(f"  note          {EXTENDED}")
    if chip.note:
        text.append(f"  note          {chip.note}")
    return text


def lora_line(question: Question) -> str:
    """Return a line that compares the checkpoints of LoRA with those of training all weights by the same optimizer."""
    settings, full_settings = question.settings, dataclasses.replace(question.settings, lora=0)
    with_adapters, without = (checkpoint_bytes(variant, question.shape) for variant in (settings, full_settings))
    slots = without - weight_bytes(question.shape)
    return (
        f"  adapters      {parameters(shape_of(settings, question.shape))}; a checkpoint is "
        f"{byte_sizes.text(with_adapters)} instead of {byte_sizes.text(without)}; all weights would have "
        f"{byte_sizes.text(slots)} of optimizer state"
    )


def _devices(question: Question) -> str:
    """Return the number of devices, or of replicas of several devices, as text."""
    if question.shard == 1:
        return number_of(question.tpu.devices, "device")
    return f"{number_of(question.replicas, 'replica')} of {question.shard} devices"


def advice_line(words: str, answer: Answer) -> str:
    """Return a line of advice: the change `words`, and the memory and time of its `answer`."""
    milliseconds = answer.step_seconds * 1e3
    return f"  would fit     {words}: {answer.compiled.hbm_bytes / GIB:.2f} GiB, {milliseconds:.1f} ms a step estimated"


def epoch_line(epoch_cost: Epoch, *, chips: int) -> str:
    """Return a line with the cost of an epoch on `chips` chips."""
    price = "" if epoch_cost.price is None else f", {format_price(epoch_cost.price)} at the price given"
    return (
        f"  an epoch      {number_of(epoch_cost.rows, 'row')}, {number_of(epoch_cost.steps, 'step')}, "
        f"{hours(epoch_cost.hours)} estimated on {number_of(chips, 'chip')}{price}"
    )


def format_price(amount: float) -> str:
    """Return an amount of money as text.

    >>> format_price(1234.5), format_price(0.0042), format_price(0)
    ('1,234.50', '<0.01', '0.00')
    """
    return "<0.01" if 0 < amount < 0.01 else f"{amount:,.2f}"


def table(answers: Sequence[tuple[Answer, Epoch | None]]) -> list[str]:
    """Return the lines of a table with one answer and its epoch in each line. Columns without any value are left out."""
    epochs = [epoch_cost for _, epoch_cost in answers if epoch_cost]
    priced = any(epoch_cost.price is not None for epoch_cost in epochs)
    head = f"{'tpu':<12}{'batch':>7}{'HBM GiB':>9}{'of':>7}  {'fits':<5}{'Mcycles':>9}{'ms/step':>9}{'peak':>6}{'rows/s':>9}"
    text = [head + (f"{'epoch':>9}" if epochs else "") + (f"{'price':>9}" if priced else "")]
    for answer, epoch_cost in answers:
        question, compiled = answer.question, answer.compiled
        line = f"{question.tpu.name:<12}{question.settings.batch:>7}{compiled.hbm_bytes / GIB:>9.2f}"
        line += f"{question.tpu.chip.hbm_bytes / GIB:>7.2f}  {'yes' if answer.fits else 'NO':<5}"
        if answer.fits and answer.step_seconds:
            line += (
                f"{compiled.estimated_cycles / 1e6:>9.1f}{answer.step_seconds * 1e3:>9.1f}{answer.share_of_peak:>6.0%}"
            )
            line += f"{question.settings.batch / answer.step_seconds:>9,.0f}"
        if epoch_cost:
            line += f"{hours(epoch_cost.hours):>9}" + (
                "" if epoch_cost.price is None else f" {format_price(epoch_cost.price):>8}"
            )
        text.append(line)
    notes = [f"Figures come {EXTENDED}."] if any(answer.extended for answer, _ in answers) else []
    return [*text, f"Cycles and all that follows from them are {A_MODEL}.", *notes]


def hours(number: float) -> str:
    """Return a number of hours as text, in seconds, minutes, hours or days.

    >>> hours(0.0001), hours(0.003), hours(0.05), hours(3.25), hours(100)
    ('<1 s', '11 s', '3 min', '3.2 h', '4.2 days')
    """
    if number * 3600 < 1:
        return "<1 s"
    if number < 1:
        return f"{number * 60:.0f} min" if number > 1 / 30 else f"{number * 3600:.0f} s"
    return f"{number:.1f} h" if number < 48 else f"{number / 24:.1f} days"


def choice_lines(choices: Sequence[tuple[Choice, Sequence[Answer]]]) -> list[str]:
    """Return the lines of a table of layouts, with the time of an epoch and the speed relative to the first layout."""
    first_seconds = epoch_seconds(*choices[0])
    text = [f"{'layout':<28}{'shapes':<30}{'padding':>8}{'cut':>7}{'epoch':>9}{'speed':>7}"]
    for choice, answers in choices:
        shapes = ", ".join(f"{shape.input_length}+{shape.target_length}" for shape in choice.shapes)
        seconds = epoch_seconds(choice, answers)
        cost = (
            f"{hours(seconds / 3600):>9}{first_seconds / seconds:>6.1f}x"
            if seconds and first_seconds
            else f"{'no room':>9}"
        )
        text.append(f"{choice.name:<28}{shapes:<30}{choice.padding:>8.0%}{choice.cut:>7.1%}{cost}")
    several = [
        f"To train in {choice.name}: t5prep train ... --set buckets="
        + ",".join(f"{shape.input_length}x{shape.target_length}" for shape in choice.shapes)
        for choice, _ in choices
        if len(choice.shapes) > 1
    ]
    return [*text, f"Epochs are {A_MODEL}.", *several]


def epoch_seconds(choice: Choice, answers: Sequence[Answer]) -> float | None:
    """Return the estimated seconds of an epoch with all shapes of a layout; None if one does not fit or has no time."""
    if not all(answer.fits and answer.step_seconds for answer in answers):
        return None
    return sum(
        math.ceil(shape.rows / answer.question.settings.batch) * answer.step_seconds
        for shape, answer in zip(choice.shapes, answers, strict=True)
    )
