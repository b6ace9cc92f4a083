"""Tell the life of one row: from its source to its record, and in a run."""

from pathlib import Path
from typing import Any

from t5prep.prepare.row_life import Lives
from t5prep.train import need_tensorflow


def why(
    id: str,
    data: str | Path,
    *,
    run: str = "",
    source: str = "",
    tokenizer: str | None = None,
    trust_code: bool = False,
) -> dict[str, Any]:
    """Return the life of one row of a dataset, in the order of the data flow.

    The row's source is read again, and the steps of `prepare` make the row once more. If the source is gone or is another
    one by now, `notes` says so, and only what the dataset itself knows is told.

    Args:
        id: The id of a record or of a rejected row, or a row of the source as `file:row` (from 1, without the header).
        data: The dataset's directory or gs:// prefix.
        run: A run that was trained on it, which is asked for the steps that saw the record, its loss and its answer.
        source: Where its source lies now, if the address in the manifest does not lead there.
        tokenizer: The tokenizer, if the one that the manifest names cannot be found.
        trust_code: Whether to execute a Python file of the task or of a filter though this user has never run it.

    Returns:
        A dict: `source` (file, row, byte, values), `example` (what the task made), `filters` (what each changed), `tokens`
        (how many, the ids, what was cut), `split` (its name, and the number that drew it), `record` (shard, number, byte,
        texts), `rejected` (the reason, and the step at which it left), `duplicates` (rows that repeat it), `also` (other
        rows with this id), `notes` (sentences), and with a run `run` (`steps`, `loss`, `prediction`). What does not apply is
        None.

    Raises:
        DatasetError: There is no dataset, or the id is nowhere in it.
        TokenizerError: The tokenizer is not the dataset's.
        UsageError: The run is none, or was not trained on this dataset.

    Example:
        print(t5prep.why("mine.csv:12", "data/mine")["split"])
    """
    lives = Lives(data, source=source, tokenizer=tokenizer, trust_code=trust_code)
    life = lives.life(id)
    if run:
        life["run"] = _in_run(life, lives, run=run)
    return life


def _in_run(life: dict[str, Any], lives: Lives, *, run: str) -> dict[str, Any] | None:
    """Return what a run did with a row's record; None if it has none."""
    record = life["record"]
    if record is None:
        return None
    need_tensorflow()
    from t5prep.train.evaluate.one_record import record_in_run

    place = {name: record[name] for name in ("shard", "number", "byte", "id")}
    return record_in_run(run, lives.dataset, data=lives.data, size=record["bytes"], **place)
