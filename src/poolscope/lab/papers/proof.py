"""A debugger for the proof of length collapse: every step of it on real attention, with its slack.

Lemma 1: A applied again and again leaves the mean alone; how fast is its second eigenvalue. Theorem 3 bounds σₐ by a
chain: σₐ ≤ ‖A‖₂ (Eq 17) ≤ ‖A‖_F (Eq 18) = a sum over scores (Eq 19 and 20) = a number of n and σ_s alone (Eq 21 and
22). Each link is measured for every text and head of the last layer. The printed Eq 20 counts the products of different
scores twice: for a row with q = Σ a² it has q/(2 − q) in place of q, so it is no equality. Eq 21 rests on scores that
are Gaussian and independent, which is looked at from the queries and keys themselves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolscope.errors import InputError, ModelError
from poolscope.lab.capture.keys import queries_and_keys
from poolscope.lab.capture.model import capture
from poolscope.lab.layers.measure import layers
from poolscope.lab.length.attention import score_bound, score_variances
from poolscope.lab.length.mechanism import measure_texts
from poolscope.lab.papers.cell import Kind, Material, Outcome, Row
from poolscope.lab.papers.common import slope_of, texts_of, units_of
from poolscope.metrics.length.bins import length_bins
from poolscope.numbers.intervals import Units, mean_estimate
from poolscope.numbers.ranking import unit_rows

Array = NDArray[np.float64]
_TEXTS = 64  # texts of one proof: each is looked at alone
_TIMES = 12  # applications of the attention
_VISIBLE = -25.0  # logarithm of a ratio that rounding does not reach
_SIMULATED = 20
_ROUNDING = 1e-5
LINKS = ("Eq 17", "Eq 18", "Eq 19–20", "Eq 21–22")


def _attention(material: Material) -> tuple[list[Array], Units]:
    """The attention of the last layer (heads × n × n) of every text with two tokens or more, and the units of these."""
    texts = texts_of(material).texts[:_TEXTS]
    matrices, places = [], []
    for batch in capture(material.model(), texts, layers=[-1]):
        for text in batch.texts():
            A = np.asarray(text.layers[0].A, dtype=np.float64)
            if A.shape[-1] > 1:
                matrices.append(A / A.sum(axis=2, keepdims=True))  # rows of float32 sum to 1 roughly
                places.append(text.position)
    return matrices, units_of(material).among(np.array(places, dtype=np.int64))


def repeated(A: Array, z: Array) -> Array:
    """log(‖HC‖/‖DC‖) of Aᵗz for t = 0, 1, … (heads × times).

    >>> course = repeated(np.array([[[0.8, 0.2], [0.3, 0.7]]]), np.array([1.0, 0.0]))  # of second eigenvalue 1/2
    >>> round(float(np.exp(rate(course[0]))), 2)
    0.5
    """
    signal = np.broadcast_to(z[:, None], (len(A), len(z), 1))
    course = []
    for _ in range(_TIMES + 1):
        mean = signal.mean(axis=1)[:, 0]
        rest = np.linalg.norm(signal[:, :, 0] - mean[:, None], axis=1)
        course.append(rest / np.maximum(np.sqrt(len(z)) * np.abs(mean), 1e-300))
        signal = A @ signal
    return np.asarray(np.log(np.maximum(np.stack(course, axis=1), 1e-300)))


def rate(course: Array) -> float:
    """How much the logarithm changes with one application, over the last half of what rounding leaves visible."""
    seen = int((course > _VISIBLE).sum())
    first, last = max(seen // 2 - 1, 0), max(seen - 1, 1)
    return float((course[last] - course[first]) / (last - first))


def low_pass(material: Material) -> Outcome:
    """Lemma 1: ‖HC‖/‖DC‖ of Aᵗz for random z, by t; and the second eigenvalue of A, which is its rate in the end."""
    random = np.random.default_rng(material.seed)
    ratios, second, sigma, rates = [], [], [], []
    matrices, units = _attention(material)
    for A in matrices:
        course = repeated(A, random.standard_normal((A.shape[-1],)))
        ratios.append(course)
        rates.append([rate(own) for own in course])
        second.append(np.sort(np.abs(np.linalg.eigvals(A)), axis=1)[:, -2])
        sigma.append(np.linalg.norm(A - A.mean(axis=1, keepdims=True), ord=2, axis=(1, 2)))
    by_text = np.array([course.mean(axis=0) for course in ratios])
    rows: list[Row] = [{"t": t, "log_ratio": mean_estimate(by_text[:, t], units)} for t in range(_TIMES + 1)]
    eigen = np.concatenate(second)
    rows.append(
        {
            "second_eigenvalue": mean_estimate(np.array([each.mean() for each in second]), units),
            "log_rate": mean_estimate(np.array([np.mean(each) for each in rates]), units),
            "log_second_eigenvalue": float(np.log(np.maximum(eigen, 1e-300)).mean()),
            "sigma_a": mean_estimate(np.array([each.mean() for each in sigma]), units),
            "share_low_pass": float((eigen < 1 - 1e-9).mean()),
            "texts": len(ratios),
        }
    )
    return Outcome(rows)


def chain(A: Array, random: np.random.Generator) -> dict[str, Array]:
    """The numbers of the chain of Theorem 3, one a head: σₐ, ‖A‖₂, ‖A‖_F, Eq 20, the same of Gaussian scores, Eq 22."""
    n = A.shape[-1]
    squares = (A**2).sum(axis=2)  # q of every row
    variance = score_variances(A)
    drawn = random.standard_normal((_SIMULATED, len(A), n)) * np.sqrt(variance)[:, None]
    weights = np.exp(drawn - drawn.max(axis=2, keepdims=True))
    weights /= weights.sum(axis=2, keepdims=True)
    return {
        "sigma_a": np.linalg.norm(A - A.mean(axis=1, keepdims=True), ord=2, axis=(1, 2)),
        "spectral": np.linalg.norm(A, ord=2, axis=(1, 2)),
        "frobenius": np.sqrt(squares.sum(axis=1)),
        "eq_20": np.sqrt((squares / (2 - squares)).sum(axis=1)),
        "gaussian": np.sqrt(n * (weights**2).sum(axis=2)).mean(axis=0),
        "eq_22": score_bound(n, variance),
        "score_variance": variance,
    }


def theorem_3(material: Material) -> Outcome:
    """Each link of the chain: for how many texts and heads it holds, its slack, and which link breaks first."""
    random = np.random.default_rng(material.seed)
    parts = [(A.shape[-1], chain(A, random)) for A in _attention(material)[0]]
    values = {name: np.concatenate([part[name] for _, part in parts]) for name in parts[0][1]}
    sides = [
        (values["sigma_a"], values["spectral"]),
        (values["spectral"], values["frobenius"]),
        (values["frobenius"], values["eq_20"]),
        (values["eq_20"], values["eq_22"]),
    ]
    holds = [left <= right * (1 + _ROUNDING) for left, right in sides]
    rows: list[Row] = []
    unbroken = np.ones(len(values["sigma_a"]), dtype=bool)
    for name, (left, right), link_holds in zip(LINKS, sides, holds, strict=True):
        rows.append(
            {
                "link": name,
                "holds": float(link_holds.mean()),
                "slack": float(np.log(right / left).mean()),
                "breaks_first": float((unbroken & ~link_holds).mean()),
            }
        )
        unbroken &= link_holds
    whole = values["sigma_a"] <= values["eq_22"] * (1 + _ROUNDING)
    end = np.log(values["eq_22"] / values["sigma_a"])
    rows.append({"link": "Eq 15, the whole", "holds": float(whole.mean()), "slack": float(end.mean())})
    for n, part in parts:
        rows.append({"tokens": n, **{name: float(own.mean()) for name, own in part.items()}})
    broken = max(rows[: len(LINKS)], key=lambda row: row["breaks_first"])
    notes = () if broken["breaks_first"] == 0 else (f"The first link that breaks is mostly {broken['link']}.",)
    rows += _assumptions(material)
    return Outcome(rows, notes=notes)


def _assumptions(material: Material) -> list[Row]:
    """Queries and keys: σ_q, σ_k, C_cross, how Gaussian they are, and the variance of the scores that follows."""
    from scipy import stats

    numbers: dict[str, list[float]] = {}
    try:
        for queries, keys in queries_and_keys(material.model(), texts_of(material).texts[:_TEXTS]):
            q, k = queries.ravel(), keys.ravel()
            covariance = float(np.mean(q * k) - q.mean() * k.mean())
            cross = float(np.mean(q**2 * k**2) - np.mean(q**2) * np.mean(k**2)) - covariance**2
            own: dict[str, Any] = {
                "sigma_q": q.std(),
                "sigma_k": k.std(),
                "c_cross": cross,
                "sigma_s_squared": q.var() * k.var() + cross,
                "correlation_q_k": covariance / max(q.std() * k.std(), 1e-300),
                "mean_q": q.mean() / max(q.std(), 1e-300),
                "mean_k": k.mean() / max(k.std(), 1e-300),
                "kurtosis_q": stats.kurtosis(q),
                "kurtosis_k": stats.kurtosis(k),
            }
            own["tau_s"] = 1 / np.sqrt(max(own["sigma_s_squared"], 1e-300))
            for name, value in own.items():
                numbers.setdefault(name, []).append(float(value))
    except ModelError as error:
        return [{"assumption": "not seen", "why": str(error)}]
    units = units_of(material)
    units = units.among(np.arange(min(len(units.of), _TEXTS)))
    return [{"assumption": name, "value": mean_estimate(np.array(values), units)} for name, values in numbers.items()]


def causal_bounds(n: int, variance: Array) -> tuple[float, Array]:
    """Bounds of σₐ for causal attention over n tokens: that of even weights, and that of scores of a given variance.

    Row i sees i tokens. Even weights 1/i make the first column 1, 1/2, … 1/n, so that σₐ² ≥ Σ 1/i² − (Σ 1/i)²/n, which
    tends to π²/6: causal attention keeps high frequencies however long the text. From above σₐ² ≤ ‖A‖_F², and with
    independent Gaussian scores row i adds about e^{σ²}/i, never more than 1: a sum that grows with log n. With the same
    reasoning a row of attention that sees all adds e^{σ²}/n, and the sum does not depend on n.

    >>> low, high = causal_bounds(3, np.array([0.0]))
    >>> round(low**2, 4), (high**2).round(4).tolist()  # 1 + 1/4 + 1/9 − (11/6)²/3, and 1 + 1/2 + 1/3
    (0.2407, [1.8333])
    """
    each = 1 / np.arange(1, n + 1)
    below = float(np.sqrt((each**2).sum() - each.sum() ** 2 / n))
    rows = np.minimum(1, np.exp(variance)[:, None] * each)
    return below, np.asarray(np.sqrt(rows.sum(axis=1)))


def causal_attention(material: Material) -> Outcome:
    """σₐ of causal attention beside the bound that is derived for it, and whether it falls with the length."""
    lengths, sigma, bounds, even = [], [], [], []
    matrices, units = _attention(material)
    for A in matrices:
        if np.triu(A, 1).any():
            raise InputError(
                f"{material.model().card.name}: its tokens see later ones, and this bound is for causal attention. "
                f"Name a decoder."
            )
        n = A.shape[-1]
        low, high = causal_bounds(n, score_variances(A))
        lengths.append(n)
        sigma.append(np.linalg.norm(A - A.mean(axis=1, keepdims=True), ord=2, axis=(1, 2)))
        bounds.append(high)
        even.append(low)
    counted = np.array(lengths)
    rows: list[Row] = [
        {"tokens": n, "sigma_a": float(own.mean()), "causal_bound": float(high.mean()), "even_weights": low}
        for n, own, high, low in zip(lengths, sigma, bounds, even, strict=True)
    ]
    holds = np.array([(own <= high * (1 + _ROUNDING)).mean() for own, high in zip(sigma, bounds, strict=True)])
    slope = slope_of(np.log2(counted), np.array([own.mean() for own in sigma]), units)
    return Outcome([*rows, {"holds": mean_estimate(holds, units), "slope": slope, "texts": len(rows)}])


def corollary_4(material: Material) -> Outcome:
    """Eq 25: does the cosine of two texts stay above α²/√((α² + α₁²)(α² + α₂²)), and does the bound rise with length?

    α is the constant part of a vector over its dimensions, α₁ and α₂ the largest other frequency of each.
    """
    measured = measure_texts(material.model(), texts_of(material).texts)
    units = unit_rows(measured.vectors, "vectors").astype(np.float64)
    spectrum = np.abs(np.fft.rfft(units, axis=1)) / np.sqrt(units.shape[1])
    constant, largest = spectrum[:, 0], spectrum[:, 1:].max(axis=1)
    length = np.sqrt(constant**2 + largest**2)
    bound = np.outer(constant, constant) / np.outer(length, length)
    cosines = units @ units.T
    bins = length_bins(measured.lengths)
    rows: list[Row] = []
    for number, label in enumerate(bins.labels):
        member = np.flatnonzero(bins.of == number)
        i, j = np.triu_indices(len(member), 1)
        pairs = member[i], member[j]
        if len(i):
            rows.append(
                {
                    "bin": label,
                    "mean_length": float(measured.lengths[member].mean()),
                    "cosine": float(cosines[pairs].mean()),
                    "bound": float(bound[pairs].mean()),
                    "holds": float((cosines[pairs] >= bound[pairs] - _ROUNDING).mean()),
                    "constant_share": float((constant[member] ** 2).mean()),
                }
            )
    return Outcome(rows)


def spectra(material: Material) -> Outcome:
    """The energy of the tokens by layer and frequency along the text: the mean alone, and three bands beyond it."""
    shares: dict[tuple[int, str], list[float]] = {}
    places: list[int] = []
    for batch in capture(material.model(), texts_of(material).texts[:_TEXTS]):
        for text in batch.texts():
            states = [text.layers[0].H, *(layer.X for layer in text.layers)]
            if len(states[0]) < 4:
                continue
            places.append(text.position)
            for depth, X in enumerate(states):
                power = (np.abs(np.fft.fft(np.asarray(X, dtype=np.float64), axis=0)) ** 2).sum(axis=1)
                frequency = np.abs(np.fft.fftfreq(len(X)))
                edges = {"mean": frequency == 0, "low": (frequency > 0) & (frequency <= 1 / 6)}
                edges |= {"middle": (frequency > 1 / 6) & (frequency <= 1 / 3), "high": frequency > 1 / 3}
                for band, member in edges.items():
                    shares.setdefault((depth, band), []).append(float(power[member].sum() / max(power.sum(), 1e-300)))
    units = units_of(material).among(np.array(places, dtype=np.int64))
    return Outcome(
        [
            {"layer": depth, "band": band, "share": mean_estimate(np.array(own), units)}
            for (depth, band), own in shares.items()
        ]
    )


def depth_and_length(material: Material) -> Outcome:
    """Over-smoothing by depth and by length in one view: concentration ratio and cosine by layer and length bin."""
    texts, units = texts_of(material), units_of(material)
    result = layers(material.model(), texts.texts, ids=texts.ids, socm_texts=0, seed=material.seed)
    bins = length_bins(result.lengths)
    rows: list[Row] = []
    for name in ("concentration_ratio", "cosine"):
        values = result.per_text(name)
        for number, label in enumerate(bins.labels):
            for layer in range(values.shape[1]):
                member = np.flatnonzero((bins.of == number) & np.isfinite(values[:, layer]))
                if len(member):
                    value = mean_estimate(values[member, layer], units.among(member))
                    rows.append({"quantity": name, "bin": label, "layer": layer, "value": value})
    return Outcome(rows)


KINDS: dict[str, Kind] = {
    "low pass": low_pass,
    "theorem 3": theorem_3,
    "causal bound": causal_attention,
    "corollary 4": corollary_4,
    "spectra": spectra,
    "depth and length": depth_and_length,
}
