"""Search for the largest batch that fits, and for changes with which a training fits."""

import dataclasses
from collections.abc import Iterator

from t5prep.planning.chips import CHIPS, Tpu
from t5prep.planning.questions import Answer, Ask, Question, widths

MOST_ROWS = 2**20  # rows on a device, at which the search ends


@dataclasses.dataclass(frozen=True)
class Advice:
    """Hold a change with which a training fits, as options to type, and the compiler's answer for it."""

    words: str
    answer: Answer


def largest_batch(question: Question, *, compile_question: Ask) -> Answer | None:
    """Return the answer for the most rows on a device that fit, or None if not even the fewest do.

    Memory grows almost linearly with the rows. So the next guess is where the line through two answers reaches the memory
    of the device. If the guess does not fit, it becomes the line's second point. Above 16 rows, the result is exact to a
    sixteenth. `compile_question` compiles a question.
    """
    unit, capacity = question.settings.accumulate, question.tpu.chip.hbm_bytes
    rows = max(question.rows, unit)
    first = compile_question(question.with_(rows=rows))
    second = first
    if first.fits:
        second = compile_question(question.with_(rows=2 * rows))
    elif not _state_fits(first) or rows == unit or not (first := compile_question(question.with_(rows=unit))).fits:
        return None
    while True:
        # `first` fits. `second` has more rows: it fits only at the beginning.
        least = first.question.rows
        growth = (second.compiled.hbm_bytes - first.compiled.hbm_bytes) / (second.question.rows - least)
        extra_rows = (capacity - first.compiled.hbm_bytes) / max(growth, 1)
        rows = least + int(min(extra_rows, MOST_ROWS)) // unit * unit
        if not second.fits:
            rows = min(rows, second.question.rows - unit)
        if rows <= least:
            return first
        answer = compile_question(question.with_(rows=rows))
        if answer.fits:
            if second.fits or second.question.rows - rows <= max(unit, rows // 16):
                return answer
            first = answer
        else:
            if second.fits and second.question.rows < rows:
                first = second
            second = answer


def advise(question: Question, *, compile_question: Ask) -> Iterator[Advice]:
    """Yield changes with which a question fits that does not fit, the cheapest first: at most one of each kind.

    The kinds are: gradient accumulation, remat, both, shorter lengths, Adafactor, the model divided over several devices,
    and a larger chip.
    """
    current_answer = compile_question(question)
    if _state_fits(current_answer):
        yield from _smaller(question, compile_question=compile_question)
    if question.settings.optimizer != "adafactor":
        words = "--set optimizer=adafactor"
        # With the present remat first: turning it on takes time.
        for remat in sorted({question.settings.remat, True}):
            answer = compile_question(question.with_(optimizer="adafactor", remat=remat))
            if answer.fits:
                yield Advice(words + (" --set remat=true" if remat > question.settings.remat else ""), answer)
                break
            if not _state_fits(answer):
                break
    for wider in widths(question):
        if wider.shard > question.shard and (answer := compile_question(wider)).fits:
            yield Advice(f"--set shard={wider.shard} (a replica of the model on {wider.shard} devices)", answer)
            break
    larger = sorted(
        (
            chip
            for chip in CHIPS.values()
            if chip.hbm_bytes > max(question.tpu.chip.hbm_bytes, _state(current_answer)) and not chip.note
        ),
        key=lambda chip: chip.hbm_bytes,
    )
    for chip in larger:
        number = question.tpu.devices * (2 if chip.counts_cores and chip.devices_per_chip == 1 else 1)
        tpu = Tpu(f"{chip.name}-{number}", chip, question.tpu.devices)
        answer = compile_question(dataclasses.replace(question, tpu=tpu))
        if answer.fits:
            yield Advice(f"--tpu {tpu.name}", answer)
            break


def _smaller(question: Question, *, compile_question: Ask) -> Iterator[Advice]:
    """Yield advice that reduces the memory of activations."""
    accumulated = _accumulated(question, compile_question=compile_question)
    if accumulated:
        yield accumulated
    remat = question.with_(remat=True)
    if not question.settings.remat:
        answer = compile_question(remat)
        if answer.fits:
            yield Advice("--set remat=true (activations are computed again)", answer)
        elif not accumulated and (both := _accumulated(remat, compile_question=compile_question)):
            yield Advice(f"--set remat=true {both.words}", both.answer)
    lengths = (question.input_length, question.target_length)
    while lengths[0] > 64:
        lengths = (lengths[0] // 2, max(lengths[1] // 2, min(lengths[1], 16)))
        answer = compile_question(question.with_(lengths=lengths))
        if answer.fits:
            yield Advice(f"--input-length {lengths[0]} --target-length {lengths[1]}", answer)
            break


def _state(answer: Answer) -> int:
    """Return the bytes of weights and optimizer, which do not depend on the batch."""
    return answer.compiled.weight_bytes + answer.compiled.slot_bytes


def _state_fits(answer: Answer) -> bool:
    """Check whether weights and optimizer alone would fit. If they do not, no smaller batch fits, and none is compiled."""
    return _state(answer) < answer.question.tpu.chip.hbm_bytes


def _accumulated(question: Question, *, compile_question: Ask) -> Advice | None:
    """Return advice with the smallest `accumulate`, doubled each time, with which a step fits; None if there is none."""
    parts = question.settings.accumulate
    while parts * 2 <= question.rows and question.rows % (parts * 2) == 0:
        parts *= 2
        answer = compile_question(question.with_(accumulate=parts))
        if answer.fits:
            return Advice(f"--set accumulate={parts}", answer)
    return None
