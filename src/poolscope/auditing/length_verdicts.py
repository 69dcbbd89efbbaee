"""What the analyses of length mean: the verdicts of a report, by the judges and thresholds of the audit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from poolscope.auditing.questions import long, position, short
from poolscope.auditing.thresholds import Thresholds
from poolscope.metrics.length.profile import LengthProfile
from poolscope.metrics.length.report import LengthReport
from poolscope.verdicts import Verdict


def length_verdicts(
    result: LengthReport | LengthProfile, thresholds: Mapping[str, Any] | None = None
) -> dict[str, Verdict]:
    """The verdict on every part of a length report, by the same judges as the audit's.

    Parameters
    ----------
    result
        What `length_report` or `length_profile` measured.
    thresholds
        Thresholds of the audit that shall differ from their defaults, by name.

    Returns
    -------
    dict of str to Verdict
        `length` (do long texts look alike?) and, where they were measured, `search` (do short documents win?),
        `position` (is an answer at the end still found?) and `labels`. Each has a level, a sentence and its evidence.

    Examples
    --------
    >>> import numpy as np
    >>> from poolscope import length_profile
    >>> random = np.random.default_rng(0)
    >>> lengths = random.integers(10, 200, size=400)
    >>> noise = random.standard_normal((400, 8))
    >>> length_verdicts(length_profile(noise, lengths))["length"].level
    'ok'
    >>> alike = length_profile(noise + np.log2(lengths)[:, None] - 3, lengths)
    >>> length_verdicts(alike)["length"].level, length_verdicts(alike, {"length_watch": 9})["length"].level
    ('watch', 'ok')

    """
    limits = Thresholds(thresholds)
    report = result if isinstance(result, LengthReport) else LengthReport(result)
    verdicts = {
        "length": long.judge(report.profile, limits, nulls=report.nulls, probes=report.probes, shift=report.shift)
    }
    if report.retrieval is not None:
        verdicts["search"] = short.judge(report.retrieval, limits)
    if report.position is not None:
        verdicts["position"] = position.judge(report.position, limits)
    if report.labels is not None:
        verdicts["labels"] = long.judge_labels(report.labels, limits)
    return verdicts
