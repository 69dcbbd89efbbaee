"""Answer from what the model declares: did the runtime pool as the model was trained?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from poolscope.auditing.basis import OK, Judgement
from poolscope.auditing.result import Action, Finding, not_applicable
from poolscope.auditing.runtime import Match, compare_runtime
from poolscope.auditing.subject import Subject
from poolscope.encoders.base import EncoderOptions, resolve_prompt
from poolscope.encoders.reports import PoolingReport
from poolscope.numbers.intervals import bootstrap_interval
from poolscope.numbers.moments import mean
from poolscope.numbers.pooling import pool
from poolscope.numbers.ranking import nearest_neighbours
from poolscope.verdicts import Verdict

Array = NDArray[np.float64]

# Poolings that a runtime may have done instead, and what is between two special tokens alone.
CANDIDATES = ("mean", "cls", "last", "max", "position")
CONTENT = "mean without special tokens"
_NEIGHBOURS = 10
# Texts whose neighbours are compared; more would not move the share.
_MOST_TEXTS = 2000


def answer_pooling(subject: Subject) -> Finding:
    """3. Did my runtime pool the way this model was trained?"""
    poolings = pooled_ways(subject)
    if subject.runtime is not None:
        return _runtime_finding(subject, poolings)
    notes = subject.pooling_report.notes()
    if subject.clouds.lengths.max() == 1 or len(subject) < 3:
        return not_applicable("texts of a single token, or fewer than three texts, are the same in every pooling")
    matches = [_kept_neighbours(subject, name, table) for name, table in poolings.items() if name != subject.pooling]
    likely = next(m for m in matches if m.pooling == ("cls" if subject.pooling == "mean" else "mean"))
    judged = Judgement("watch", "declared") if _unclear(subject.pooling_report) else OK
    declared = "declares" if subject.card.pooling else "declares no pooling; taken as"
    sentence = (
        f"The model {declared} {subject.pooling} pooling; a runtime that pools by {likely.pooling} instead would keep "
        f"{likely.value:.0%} of the ten nearest neighbours. Hand in its vectors (--vectors) to see what it does."
    )
    verdict = Verdict(judged.level, sentence, likely.value, likely.interval, likely.floor, notes)
    numbers = {"pooling": subject.pooling, "wrong_pooling_keeps": likely.value}
    action = Action(
        "configure",
        "check prompt and pooling of your runtime against what the model declares",
        _with_prompt(subject),
        "a setting of the runtime; vectors made with a wrong one must be made again",
    )
    title = f"Neighbours that survive another pooling than {subject.pooling}"
    return Finding(
        verdict,
        numbers,
        {"poolings": _table(matches)},
        lambda: _draw(matches, title),
        action,
        number_name=f"neighbours left if pooled by {likely.pooling}",
        basis=judged.basis,
    )


def _unclear(report: PoolingReport) -> bool:
    """Does the declaration leave something open that changes the vectors?"""
    further = any(module != "Normalize" for module in report.after)
    return not report.declared or len(report.declared) > 1 or further or (bool(report.prompts) and not report.prompt)


def _with_prompt(subject: Subject) -> str | None:
    """The audit with the prompt that the model declares for documents; None if it has none, or one was chosen."""
    chosen = {"prompt", "prompt_name", "role"} & set(subject.named.options) or subject.pooling_report.prompt
    if chosen or not resolve_prompt(subject.card, EncoderOptions(role="document")):
        return None
    return subject.command("audit", role="document")


def _runtime_finding(subject: Subject, poolings: Mapping[str, Array]) -> Finding:
    """The answer where the runtime's own vectors are at hand."""
    found = compare_runtime(subject, poolings)
    own, cause = found.own, found.cause
    verdict = Verdict(cause.judged.level, cause.sentence, own.value, own.interval, own.floor, found.evidence)
    numbers = {
        "pooling": subject.pooling,
        "runtime_pooling": found.fits,
        "runtime_cosine": own.value,
        "runtime_best_cosine": found.best.value,
        "runtime_normalised": found.normalised,
    }
    again = subject.command("audit") if "vectors" in subject.named.settings else None
    action = Action("configure", cause.step, again, cause.cost)
    title = "Cosine of your runtime's vectors with each pooling of the tokens"
    tables = {"poolings": _table(found.matches)}
    return Finding(verdict, numbers, tables, lambda: _draw(found.matches, title), action, basis=cause.judged.basis)


def pooled_ways(subject: Subject) -> dict[str, Array]:
    """The texts pooled in each way that a runtime may have done (texts × d)."""
    ways = {name: pool(subject.clouds, name) for name in CANDIDATES}
    content = _without_special(subject)
    return ways if content is None else {**ways, CONTENT: content}


def _without_special(subject: Subject) -> Array | None:
    """Means of the tokens that stand for text; None where special tokens are not known, or are all there is."""
    vocabulary = subject.vocabulary
    if vocabulary is None or not vocabulary.special_ids:
        return None
    special, rows = list(vocabulary.special_ids), []
    for k, cloud in enumerate(subject.clouds):
        ids = subject.clouds.token_ids(k)
        keep = None if ids is None else ~np.isin(ids, special)
        if keep is None or not keep.any():
            return None
        rows.append(mean(cloud[keep]))
    return np.array(rows)


def _kept_neighbours(subject: Subject, name: str, table: Array) -> Match:
    """Share of the ten nearest neighbours that stay under another pooling; by chance k/(N − 1) of them would."""
    some = np.sort(np.random.default_rng(subject.seed).permutation(len(table))[:_MOST_TEXTS])
    k = min(_NEIGHBOURS, len(some) - 1)
    right, other = (nearest_neighbours(vectors[some], k)[0] for vectors in (subject.vectors, table))
    shared = (right[:, :, None] == other[:, None, :]).any(axis=2).mean(axis=1)
    return Match(name, float(shared.mean()), bootstrap_interval(shared, seed=subject.seed), k / (len(some) - 1))


def _table(matches: Sequence[Match]) -> pa.Table:
    return pa.table(
        {
            "pooling": [match.pooling for match in matches],
            "value": [match.value for match in matches],
            "low": [None if match.interval is None else match.interval.low for match in matches],
            "high": [None if match.interval is None else match.interval.high for match in matches],
            "floor": [match.floor for match in matches],
        }
    )


def _draw(matches: Sequence[Match], title: str) -> Any:
    from poolscope.auditing.charts import bars_figure

    intervals = [match.interval for match in matches]
    return bars_figure(
        [m.pooling for m in matches], [m.value for m in matches], intervals, floor=matches[0].floor, title=title
    )
