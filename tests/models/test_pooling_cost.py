"""The pooling costs that plain code measured once, again, by the product: corpora that `tools/corpora.py` writes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from poolscope import as_encoder, compare_scores
from poolscope.evaluation import RetrievalTask, query_task
from poolscope.evaluation.run import for_role
from poolscope.numbers.maxsim import blend, maxsim, ordinary_tokens
from poolscope.numbers.pooling import MeanPooling
from poolscope.numbers.ranking import rank_scores, unit_rows

pytestmark = pytest.mark.models
ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("debian_corpora", ROOT / "tools" / "corpora.py")
tool = importlib.util.module_from_spec(spec)
sys.modules["debian_corpora"] = tool
spec.loader.exec_module(tool)


def task_of(corpus: str) -> RetrievalTask:
    if corpus.startswith("builtin:"):
        return query_task(corpus, corpus)
    folder = tool.corpora_folder() / corpus
    if not folder.is_dir():
        pytest.skip(f"{corpus} is not in {tool.corpora_folder()}; `python tools/corpora.py` writes it")
    return query_task(str(folder / "texts.jsonl"), str(folder / "queries.jsonl"))


# Only the manuals are the texts of the first measurement. The others are cut or drawn anew: the mean scores 0.828
# on our cut of the Perl FAQ (300 answers) where it had 0.849 (301), so their nDCG@10 is not compared.
# The gain, with weight 1 fixed beforehand, must lie in the interval that it had then.
@pytest.mark.parametrize(
    ("corpus", "mean", "low", "high"),
    [
        ("builtin:manuals", 0.660, -0.005, 0.044),
        ("perl-faq", None, 0.007, 0.040),
        ("packages-en", None, 0.018, 0.043),
        ("packages-de", None, 0.096, 0.145),
    ],
)
def test_the_blend_gains_what_plain_code_gained(corpus, mean, low, high):
    task, encoder = task_of(corpus), as_encoder("builtin:minilm")
    queries, texts = (for_role(encoder, side.role).encode(list(side.texts))[-1] for side in task.sides)
    sides = [unit_rows(MeanPooling().transform(side), "means") for side in (queries, texts)]
    cosines = np.asarray(sides[0] @ sides[1].T)
    tokens = maxsim(queries, texts, query_tokens=ordinary_tokens(queries, encoder.vocabulary.special_ids))
    before, after = (
        task.evaluation(rank_scores(table, task.relevant)) for table in (cosines, blend(cosines, tokens, 1.0))
    )
    gain = compare_scores(before, after)
    print(f"{corpus}: {len(task.queries)} queries, {before.value:.4f}, {gain}")
    if mean is not None:
        assert before.value == pytest.approx(mean, abs=0.002)
    assert low <= gain.mean <= high
