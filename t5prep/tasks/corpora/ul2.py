"""Plain text → masked spans, the pre-training of UL2.

Documents are concatenated and cut into full rows. Each row is masked in one of seven ways.

Source   Any text, as for span_corruption.
Example  [NLU] Thank you <extra_id_0> me to your party <extra_id_1> week. → <extra_id_0> for inviting <extra_id_1> last
         [S2S] Thank you for inviting me to your → party last week.
Paper    Tay et al. 2022, table 1: R-denoisers (spans of 3 or 8 tokens, 15 % hidden), X-denoisers (3 or 8 with 50 %; 64 with
         15 or 50 %), and an S-denoiser, which hides the last quarter. Each denoiser gets an equal share of the rows, as in
         the code of the appendix. That code also draws the position of the S-denoiser's cut. The words for the modes are
         those of google/ul2.

If half of 512 tokens is hidden in spans of 3, the 100 sentinels are too few. Such rows have 402 tokens and their mode.
"""

import dataclasses

from t5prep.tasks.corpora import span_corruption
from t5prep.tasks.task import Corpus, Denoiser, Mixture

R, X, S = "[NLU]", "[NLG]", "[S2S]"
DENOISERS = Mixture(
    (
        Denoiser(R, 0.15, 3.0),
        Denoiser(R, 0.15, 8.0),
        Denoiser(X, 0.5, 3.0),
        Denoiser(X, 0.5, 8.0),
        Denoiser(X, 0.15, 64.0),
        Denoiser(X, 0.5, 64.0),
        Denoiser(S, 0.25, 0.0),
    )
)
TASK = dataclasses.replace(
    span_corruption.TASK,
    options=span_corruption.TextOptions,
    corpus=Corpus(format="text", citation="Tay et al. 2022, UL2: Unifying Language Learning Paradigms"),
    target_length=512,
    spans=lambda options: DENOISERS,
)
