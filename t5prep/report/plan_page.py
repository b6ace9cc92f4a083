"""Show plans of `t5prep plan` as one HTML page."""

from collections.abc import Sequence
from pathlib import Path

from t5prep.planning import report
from t5prep.planning.chips import GIB
from t5prep.planning.interface import Plan
from t5prep.report import write_page
from t5prep.report.pages import escape_invisible, render

# Maximum number of kinds of operations in the table. The others are one row.
LISTED = 12


def write(plans: Sequence[Plan], *, out: str | Path) -> None:
    """Write the page of one plan, or of the plans of a sweep, to `out`.

    Raises OutputError, also if `out` is a file that is not a page.
    """
    compiled = plans[0].answer.compiled
    page = render(
        "plan.html",
        title=f"{escape_invisible(plans[0].answer.question.settings.model, 60)} on {plans[0].answer.question.tpu.name}",
        plans=[_facts(plan) for plan in plans],
        table=report.table([(plan.answer, plan.epoch) for plan in plans]) if len(plans) > 1 else [],
        versions=", ".join(f"{name} {version}" for name, version in compiled.versions.items()),
        model_note=report.A_MODEL,
    )
    write_page(Path(out), page, option="--html")


def _facts(plan: Plan) -> dict[str, object]:
    """Return the template's variables for one plan."""
    answer, compiled = plan.answer, plan.answer.compiled
    question, room = answer.question, answer.question.tpu.chip.hbm_bytes
    parts = {
        "weights": compiled.weight_bytes,
        "optimizer": compiled.slot_bytes,
        "activations and gradients": compiled.temp_bytes,
        "program": compiled.program_bytes,
    }
    # If a step does not fit, the compiler tells only its total.
    parts = {name: size for name, size in parts.items() if answer.fits and size}
    cycles = compiled.by_operation if answer.fits else {}
    listed = sorted(cycles.items(), key=lambda item: -item[1])
    other_cycles = sum(number for _, number in listed[LISTED:])
    listed = listed[:LISTED] + ([("all others", other_cycles)] if other_cycles else [])
    report_lines = report.lines(answer, model=question.settings.model)
    report_lines += [report.advice_line(advice.words, advice.answer) for advice in plan.advice]
    return {
        "model": question.settings.model,
        "tpu": question.tpu.name,
        "batch": question.settings.batch,
        "fits": answer.fits,
        "needed": f"{compiled.hbm_bytes / GIB:.2f} of {room / GIB:.2f} GiB",
        "milliseconds": answer.step_seconds * 1e3 if answer.fits else 0.0,
        "peak": answer.share_of_peak if answer.fits else 0.0,
        "rows_per_second": question.settings.batch / answer.step_seconds
        if answer.fits and answer.step_seconds
        else 0.0,
        "epoch": plan.epoch,
        "hours": report.hours(plan.epoch.hours) if plan.epoch else "",
        "price": report.format_price(plan.epoch.price) if plan.epoch and plan.epoch.price is not None else "",
        "largest": plan.largest.question.settings.batch if plan.largest else 0,
        "memory": [
            (name, size / GIB, size / room) for name, size in {**parts, "all of it": compiled.hbm_bytes}.items()
        ],
        "operations": [(name, number, number / sum(cycles.values())) for name, number in listed],
        "lines": report_lines,
    }
