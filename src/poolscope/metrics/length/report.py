"""Everything about length for one model and one corpus: the profile from one pass, then the probes that need others."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from poolscope.encoders import EncoderOptions, Progress, TokenEncoder, as_encoder
from poolscope.encoders.base import resolve_prompt
from poolscope.encoders.inputs import TokenInputs
from poolscope.errors import InputError, ModelError
from poolscope.files import write_json
from poolscope.metrics.length.bins import MIN_TEXTS
from poolscope.metrics.length.labels import LengthLabels, labels_by_length
from poolscope.metrics.length.mechanism import LengthMechanism, length_mechanism
from poolscope.metrics.length.nulls import LengthNulls, length_nulls
from poolscope.metrics.length.passes import measure_texts
from poolscope.metrics.length.position import PositionProbe, position_probe
from poolscope.metrics.length.probes import LengthProbe, join_probe, repetition_probe, truncation_probe
from poolscope.metrics.length.profile import length_profile
from poolscope.metrics.length.result import LengthProfile
from poolscope.metrics.length.retrieval import LengthRetrieval, retrieval_by_length
from poolscope.results import plain
from poolscope.texts import Pairs
from poolscope.verdicts import Level, Verdict

_Result = TypeVar("_Result")

# Share of the rise that whole texts may exceed plain averages by, where averaging is said to explain it.
NEGLIGIBLE_EXCESS = 0.25


@dataclass(frozen=True)
class LengthReport:
    """The parts that were measured; None for those that were not, with the reason in `notes`."""

    profile: LengthProfile
    model: Mapping[str, Any] | None = None
    mechanism: LengthMechanism | None = None
    nulls: LengthNulls | None = None
    probes: tuple[LengthProbe, ...] = ()
    retrieval: LengthRetrieval | None = None
    position: PositionProbe | None = None
    labels: LengthLabels | None = None
    truncated: int = 0
    notes: tuple[str, ...] = field(default=())

    @cached_property
    def verdict(self) -> Verdict:
        """The verdict of the profile in the light of the null models."""
        return judge(self.profile, self.nulls, self.probes)

    @property
    def encoded_tokens(self) -> int:
        """Tokens that the probes and null models had encoded on top of the texts themselves."""
        parts = [*self.probes, *(part for part in (self.nulls, self.position) if part is not None)]
        return sum(part.encoded_tokens for part in parts)

    def to_dict(self) -> dict[str, Any]:
        """Everything that was measured, plain types only."""
        parts = {name: getattr(self, name) for name in ("mechanism", "nulls", "retrieval", "position", "labels")}
        return {
            "verdict": self.verdict.to_dict(),
            "model": plain(self.model),
            "texts_truncated": self.truncated,
            "profile": self.profile.to_dict(),
            **{name: None if part is None else part.to_dict() for name, part in parts.items()},
            "probes": [probe.to_dict() for probe in self.probes],
            "probe_tokens": self.encoded_tokens,
            "notes": list(self.notes),
        }

    def save_json(self, path: str | os.PathLike[str]) -> None:
        """Write `to_dict()` as JSON, atomically."""
        write_json(path, self.to_dict())


def judge(profile: LengthProfile, nulls: LengthNulls | None, probes: Sequence[LengthProbe] = ()) -> Verdict:
    """The verdict of a profile, with what the null models explain taken off it.

    Averaging explains a rise if whole documents exceed averages of their independently encoded chunks by less than a
    quarter of it, at the upper end of the interval, in chunks of two lengths. Then the verdict is `watch` at most, and
    says that shorter chunks help where a repair of the model would not. An excess that is merely uncertain, or hangs on
    the length of the chunks, takes nothing back.
    """
    found = profile.verdict
    evidence = list(found.evidence)
    if nulls is not None:
        evidence += nulls.sentences()
    evidence += [probe.sentence() for probe in probes]
    level: Level = found.level
    sentence = found.sentence
    if nulls is not None and level != "ok":
        level, words = _against_averaging(level, nulls)
        sentence += words
    return Verdict(level, sentence, found.value, found.interval, found.floor, tuple(evidence))


def _against_averaging(level: Level, nulls: LengthNulls) -> tuple[Level, str]:
    """The level of a rise that is not `ok`, and what plain averaging has to do with it, in chunks of both lengths."""
    last = nulls.last
    rows = [last] if nulls.other is None else [last, nulls.other]
    ends = [
        (-np.inf, np.inf) if row.excess.interval is None else (row.excess.interval.low, row.excess.interval.high)
        for row in rows
    ]
    lowest, highest = min(low for low, _ in ends), max(high for _, high in ends)
    measured = " and ".join(
        f"{row.excess.value:+.3f} {row.excess.interval} in chunks of {row.tokens // row.chunks}" for row in rows
    )
    measured = f"whole minus averaged {measured}, at {last.tokens} tokens"
    if lowest > 0:
        share = "" if nulls.explained is None else f", which explains {min(max(nulls.explained, 0), 1):.0%} of it"
        return level, f" That is {last.excess.value:.3f} more than plain averaging gives{share}."
    rise = (last.full.value or 0.0) - (nulls.averaging[0].full.value or 0.0)
    if nulls.other is not None and highest < NEGLIGIBLE_EXCESS * max(rise, 0.0):
        alike = "more alike than" if highest < 0 else "about as alike as"
        return "watch", (
            f" Plain averaging explains it: averages of independently encoded chunks are {alike} whole texts "
            f"({measured}; less than {NEGLIGIBLE_EXCESS:.0%} of the rise of {rise:.3f}). Shorter chunks help; a repair "
            f"of the model's attention has little to win here."
        )
    if highest < 0:
        return level, (
            f" Averages of independently encoded chunks are more alike than whole texts ({measured}). No chunk of "
            f"another length fits, so whether plain averaging explains it hangs on this one."
        )
    if max(low for low, _ in ends) > min(high for _, high in ends):
        return level, f" How much of it is plain averaging hangs on the length of the chunks ({measured})."
    return level, f" It cannot be told from plain averaging on {nulls.documents} documents ({measured})."


def length_report(
    model: Any,
    texts: Sequence[str],
    *,
    labels: Sequence[str] | None = None,
    pairs: Pairs | None = None,
    bins: int | Sequence[float] | None = None,
    min_texts: int = MIN_TEXTS,
    probes: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
    **options: Any,
) -> LengthReport:
    """Profile, mechanism, null models, probes, retrieval, position and labels of a model, by length.

    Profile, mechanism and labels come from one pass over the texts. `probes` (null models, cut, repeated and joined
    texts) and `pairs` (retrieval, and the moved segment) need inputs of their own, encoded after it; samples bound what
    they cost, and `encoded_tokens` says what it was. A part that cannot be measured is left out with its reason.
    """
    encoder = as_encoder(model, **options)
    measured = measure_texts(encoder, texts, progress=progress)
    settings: dict[str, Any] = {"bins": bins, "min_texts": min_texts, "seed": seed}
    profile = length_profile(measured.vectors, measured.lengths, **settings)
    parts: dict[str, Any] = {}
    notes = [*measured.pooling_notes]
    if labels is not None:
        parts["labels"] = labels_by_length(measured.vectors, measured.lengths, labels, **settings)
    if probes:
        parts |= _probes(encoder, texts, seed, progress, notes)
    if pairs is not None:
        parts |= _search(encoder, _query_encoder(model, encoder, options), pairs, settings, progress, notes)
    return LengthReport(
        profile=profile,
        model=measured.card.to_dict(),
        mechanism=length_mechanism(measured, profile),
        truncated=int((measured.truncated > 0).sum()),
        notes=tuple(notes),
        **parts,
    )


def _probes(
    encoder: TokenEncoder, texts: Sequence[str], seed: int, progress: Progress | None, notes: list[str]
) -> dict[str, Any]:
    shared: dict[str, Any] = {"seed": seed, "progress": progress}
    if _attempt("The null models and probes were", lambda: TokenInputs(encoder), notes) is None:
        return {}
    nulls = _attempt("The null models were", lambda: length_nulls(encoder, texts, **shared), notes)
    found = [
        _attempt("The cut texts were", lambda: truncation_probe(encoder, texts, **shared), notes),
        _attempt("The repeated words were", lambda: repetition_probe(encoder, progress=progress), notes),
        _attempt("The joined texts were", lambda: join_probe(encoder, texts, **shared), notes),
    ]
    return {"nulls": nulls, "probes": tuple(probe for probe in found if probe is not None)}


def _search(
    encoder: TokenEncoder,
    asking: TokenEncoder,
    pairs: Pairs,
    settings: Mapping[str, Any],
    progress: Progress | None,
    notes: list[str],
) -> dict[str, Any]:
    relevant = pairs.index if pairs.labels is None else pairs.index[pairs.labels > 0]
    queries = measure_texts(asking, pairs.queries.texts, progress=progress)
    documents = measure_texts(encoder, pairs.documents.texts, progress=progress)
    relevant = np.unique(relevant, axis=0)
    retrieval = _attempt(
        "Retrieval by length was",
        lambda: retrieval_by_length(
            queries.vectors, documents.vectors, relevant, documents.lengths, truncated=documents.truncated, **settings
        ),
        notes,
    )
    position = _attempt(
        "The position of an answer was",
        lambda: position_probe(encoder, pairs, query_encoder=asking, seed=settings["seed"], progress=progress),
        notes,
    )
    return {"retrieval": retrieval, "position": position}


def _query_encoder(model: Any, encoder: TokenEncoder, options: Mapping[str, Any]) -> TokenEncoder:
    """The encoder of the queries: the same, or with the prompt that the model declares for queries."""
    asked = any(options.get(name) is not None for name in ("prompt", "prompt_name", "role"))
    if asked or not resolve_prompt(encoder.card, EncoderOptions(role="query")):
        return encoder
    return as_encoder(model, **{**options, "role": "query"})


def _attempt(what: str, measure: Callable[[], _Result], notes: list[str]) -> _Result | None:
    """A part of the report, or None and a note that says why not."""
    try:
        return measure()
    except (InputError, ModelError) as error:
        notes.append(f"{what} not measured: {error}")
        return None
