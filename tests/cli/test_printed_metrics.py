"""What `eval` and `train` print of an evaluation: classes have no ROUGE beside their accuracy, unless it is asked for."""

import pytest

from t5prep.cli import _output
from t5prep.training.evaluate import metrics

REFERENCES, ANSWERS = [["good"], ["bad"], ["good"]], ["good", "good", "good"]


@pytest.mark.parametrize(
    ("names", "is_asked", "is_text_shown"),
    [
        (["squad", "rouge", "classification"], False, False),
        (["squad", "rouge", "classification"], True, True),
        (["squad", "rouge"], False, True),
    ],
)
def test_classes_are_printed_without_the_scores_of_texts(
    names: list[str], is_asked: bool, is_text_shown: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    values = metrics.compute(names, references=REFERENCES, predictions=ANSWERS, classes=["good", "bad"])
    _output.print_metrics({"loss": 0.5, **values}, is_asked=is_asked)
    printed = {line.split()[0] for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert ({"em", "f1", "rouge1_f1", "rougeL_recall"} <= printed) == is_text_shown
    assert ({"em", "f1", "rouge1_f1", "rougeL_recall"} & printed == set()) != is_text_shown
    assert {"loss"} | ({"accuracy", "macro_f1", "good"} if "classification" in names else set()) <= printed
