"""Everything about length for one model and one corpus: the profile from one pass, then the probes that need others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from poolscope.encoders import EncoderOptions, Progress, TokenEncoder, as_encoder
from poolscope.encoders.base import as_progress, check_texts, resolve_prompt
from poolscope.encoders.batching import TokenInputs
from poolscope.encoders.capabilities import can_encode
from poolscope.encoders.pooling import TextPooling
from poolscope.errors import InputError, ModelError
from poolscope.lab.length.labels import LengthLabels, labels_by_length
from poolscope.lab.length.mechanism import LengthMechanism, MeasuredTexts, length_mechanism, measure_texts
from poolscope.lab.length.position import PositionProbe, position_probe
from poolscope.lab.length.probes import (
    LengthNulls,
    LengthProbe,
    join_probe,
    length_nulls,
    repetition_probe,
    truncation_probe,
)
from poolscope.lab.length.shift import SemanticShift, semantic_shift
from poolscope.metrics.length.bins import MIN_TEXTS, LengthPart, Panel
from poolscope.metrics.length.profile import LengthProfile, length_profile
from poolscope.metrics.length.search import LengthRetrieval, retrieval_by_length
from poolscope.show.charts import short_name
from poolscope.texts import Pairs
from poolscope.texts.groups import groups_of_ids

_Part = TypeVar("_Part")


@dataclass(frozen=True, repr=False)
class LengthReport(LengthPart):
    """The parts that were measured; None for those that were not, with the reason in `notes`.

    `model` is what the model declares, `texts_truncated` how many texts were cut at its limit.
    """

    profile: LengthProfile
    model: Mapping[str, Any] | None = None
    mechanism: LengthMechanism | None = None
    nulls: LengthNulls | None = None
    probes: tuple[LengthProbe, ...] = ()
    shift: SemanticShift | None = None
    retrieval: LengthRetrieval | None = None
    position: PositionProbe | None = None
    labels: LengthLabels | None = None
    texts_truncated: int = 0
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        parts = ("mechanism", "nulls", "probes", "shift", "retrieval", "position", "labels")
        return f"LengthReport({', '.join([repr(self.profile), *(name for name in parts if getattr(self, name))])})"

    def figure_title(self) -> str:
        model = [] if self.model is None else [short_name(self.model["name"])]
        named = " · ".join(["Length", *model, f"{self.profile.texts:,} texts"])
        return f"{named} · bars: 95% intervals · grey: chance"

    def panels(self) -> list[Panel]:
        """The panels of all measured parts, on one sheet."""
        causes = [self.profile, self.mechanism, self.nulls, *self.probes, self.shift]
        parts: list[LengthPart | None] = [*causes, self.retrieval, self.position, self.labels]
        return [panel for part in parts if part is not None for panel in part.panels()]

    def headline(self) -> dict[str, Any]:
        """That of the profile."""
        return self.profile.headline()

    def summary_rows(self) -> list[tuple[str, str]]:
        """The numbers of the profile."""
        return self.profile.summary_rows()

    def in_words(self) -> tuple[str, ...]:
        """The profile in words, then what each further part adds."""
        parts: list[str] = [] if self.nulls is None else list(self.nulls.in_words()[:2])
        parts += [] if self.shift is None else [self.shift.sentence()]
        for part in (self.retrieval, self.position, self.labels):
            parts += [] if part is None else part.in_words()
        return (*self.profile.in_words(), *parts)

    @property
    def encoded_tokens(self) -> int:
        """Tokens that the probes and null models had encoded on top of the texts themselves."""
        parts = [*self.probes, *(part for part in (self.nulls, self.shift, self.position) if part is not None)]
        return sum(part.encoded_tokens for part in parts)

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Where the numbers came from: that of the profile, which every report has."""
        return self.profile.provenance

    def derived(self) -> dict[str, Any]:
        """What the parts cost together."""
        return {"probe_tokens": self.encoded_tokens}

    def rows(self) -> list[dict[str, Any]]:
        """The profile, one row a bin."""
        return self.profile.rows()


def length_report(
    model: Any,
    texts: Any,
    *,
    labels: Sequence[Any] | None = None,
    pairs: Pairs | None = None,
    groups: Sequence[Any] | None = None,
    bins: int | Sequence[float] | None = None,
    min_texts: int = MIN_TEXTS,
    probes: bool = True,
    seed: int = 0,
    measured: MeasuredTexts | None = None,
    progress: bool | Progress | None = None,
    **options: Any,
) -> LengthReport:
    """Profile, mechanism, null models, probes, retrieval, position and labels of a model, by length.

    Profile, mechanism and labels come from one pass over the texts. Null models, probes and the search need inputs of
    their own, encoded after it; samples bound what they cost, and `encoded_tokens` says what it was. A part that cannot
    be measured is left out with its reason.

    Parameters
    ----------
    model
        Anything that `as_encoder` takes: a name, a folder, a model with its tokenizer, a function, ready clouds.
    texts
        The texts, or what `read_texts` reads: a path, a data frame, an Arrow table, a data set.
    labels
        A label a text, to be predicted from the vectors by length.
    pairs
        Queries with their documents (`read_pairs`): who wins a search, and from where.
    groups
        The document of each text, where it is known: intervals are then over documents, and sentences of one document
        are a kind of their own.
    bins
        None for up to 20 bins of equal numbers of texts for the profile, and for search and labels widths of 50 (fifths
        where few texts have 100 tokens); a number of quantile bins, or edges, for all.
    min_texts
        Bins with fewer texts are merged with a neighbour.
    probes
        Whether to measure null models, cut, repeated and joined texts, and the change of subject.
    seed
        Of everything that is drawn.
    measured
        What `measure_texts` gave for these texts, on another machine for instance; they are then not encoded again.
    progress : bool or callable, optional
        True for a line now and then on standard error; or what is called with the numbers of texts and tokens as they
        are encoded.
    **options
        Those of `as_encoder`, such as `max_length`.

    Returns
    -------
    LengthReport
        The parts that were measured.

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> texts = ["word " * int(n) for n in random.integers(1, 9, size=40)]
    >>> clouds = {text: random.standard_normal((len(text.split()), 4)) for text in texts}
    >>> report = length_report(lambda batch: [clouds[text] for text in batch], texts, bins=2, min_texts=9, probes=False)
    >>> len(report.profile.bins), report.nulls is None
    (2, True)

    """
    texts, progress = check_texts(texts), as_progress(progress)
    encoder = as_encoder(model, **options)
    if pairs is not None and not isinstance(pairs, Pairs):
        raise InputError(f"pairs: received {type(pairs).__name__}; allowed: what read_pairs gives. Read them with it.")
    measured = measure_texts(encoder, texts, progress=progress) if measured is None else measured
    if len(measured.lengths) != len(texts):
        raise InputError(f"measured: received {len(measured.lengths)} texts for {len(texts)}; measure the same texts.")
    settings: dict[str, Any] = {"bins": bins, "min_texts": min_texts, "seed": seed}
    profile = length_profile(measured.vectors, measured.lengths, groups=groups, texts=texts, **settings)
    parts: dict[str, Any] = {}
    notes = [*measured.pooling_notes]
    if labels is not None:
        parts["labels"] = labels_by_length(measured.vectors, measured.lengths, labels, groups=groups, **settings)
    if probes:
        parts |= _probes(encoder, texts, measured, groups, seed, progress, notes)
        parts["shift"] = _attempt(
            "The change of subject was", lambda: _shift(encoder, texts, measured, groups, seed, progress), notes
        )
    if pairs is not None:
        query_encoder = _query_encoder(model, encoder, options)
        same = measured if list(pairs.documents.texts) == list(texts) else None
        parts |= _search(encoder, query_encoder, pairs, same, groups, settings, progress, notes)
    return LengthReport(
        profile=profile,
        model=measured.card.to_dict(),
        mechanism=length_mechanism(measured, profile, groups),
        texts_truncated=int((measured.truncated > 0).sum()),
        notes=tuple(notes),
        **parts,
    )


def _probes(
    encoder: TokenEncoder,
    texts: Sequence[str],
    measured: MeasuredTexts,
    groups: Sequence[Any] | None,
    seed: int,
    progress: Progress | None,
    notes: list[str],
) -> dict[str, Any]:
    """Null models and probes on the same inputs: what one encoded, or the pass over the texts, serves the others."""
    shared: dict[str, Any] = {"groups": groups, "seed": seed, "progress": progress}
    inputs = _attempt("The null models and probes were", lambda: TokenInputs(encoder), notes)
    if inputs is None:
        return {}
    inputs.remember(texts, measured.vectors)
    nulls = _attempt("The null models were", lambda: length_nulls(inputs, texts, **shared), notes)
    attempts = [
        _attempt("The cut texts were", lambda: truncation_probe(inputs, texts, **shared), notes),
        _attempt("The repeated words were", lambda: repetition_probe(inputs, progress=progress), notes),
        _attempt("The joined texts were", lambda: join_probe(inputs, texts, **shared), notes),
    ]
    return {"nulls": nulls, "probes": tuple(probe for probe in attempts if probe is not None)}


def _shift(
    encoder: TokenEncoder,
    texts: Sequence[str],
    measured: MeasuredTexts,
    groups: Sequence[Any] | None,
    seed: int,
    progress: Progress | None,
) -> SemanticShift:
    if not can_encode(encoder):
        raise ModelError(
            "received ready clouds, and sentences would have to be encoded. Name the model that made them."
        )
    pooling, tokens = TextPooling.of(encoder), 0

    def encode(parts: list[str]) -> Any:
        nonlocal tokens
        clouds = encoder.encode(parts, progress=progress)[-1]
        tokens += int(clouds.lengths.sum())
        return pooling.pool(clouds)

    result = semantic_shift(
        measured.vectors,
        measured.lengths,
        texts,
        encode,
        groups=groups,
        read=measured.lengths / (measured.lengths + measured.truncated),
        seed=seed,
    )
    return replace(result, encoded_tokens=tokens)


def _search(
    encoder: TokenEncoder,
    query_encoder: TokenEncoder,
    pairs: Pairs,
    measured: MeasuredTexts | None,
    groups: Sequence[Any] | None,
    settings: Mapping[str, Any],
    progress: Progress | None,
    notes: list[str],
) -> dict[str, Any]:
    """Who wins a search, and from where; `measured`: the documents, where they are the texts of the report, of which
    `groups` are.
    """
    relevant = pairs.index if pairs.labels is None else pairs.index[pairs.labels > 0]
    queries = measure_texts(query_encoder, pairs.queries.texts, progress=progress)
    documents = measure_texts(encoder, pairs.documents.texts, progress=progress) if measured is None else measured
    relevant = np.unique(relevant, axis=0)
    groups = groups_of_ids(pairs.documents.ids) if measured is None else groups
    retrieval = _attempt(
        "Retrieval by length was",
        lambda: retrieval_by_length(
            queries.vectors,
            documents.vectors,
            relevant,
            documents.lengths,
            truncated=documents.truncated,
            groups=groups,
            **settings,
        ),
        notes,
    )
    position = _attempt(
        "The position of an answer was",
        lambda: position_probe(
            encoder, pairs, query_encoder=query_encoder, groups=groups, seed=settings["seed"], progress=progress
        ),
        notes,
    )
    return {"retrieval": retrieval, "position": position}


def _query_encoder(model: Any, encoder: TokenEncoder, options: Mapping[str, Any]) -> TokenEncoder:
    """The encoder of the queries: the same, or with the prompt that the model declares for queries."""
    chosen = any(options.get(name) is not None for name in ("prompt", "prompt_name", "role"))
    if chosen or not resolve_prompt(encoder.card, EncoderOptions(role="query")):
        return encoder
    return as_encoder(model, **{**options, "role": "query"})


def _attempt(what: str, measure: Callable[[], _Part], notes: list[str]) -> _Part | None:
    """A part of the report, or None and a note that says why not."""
    try:
        return measure()
    except (InputError, ModelError) as error:
        notes.append(f"{what} not measured: {error}")
        return None
