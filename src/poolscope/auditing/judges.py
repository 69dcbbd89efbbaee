"""Judges of the audit for what is measured by itself: a report of length, and what a runtime gives."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from poolscope.auditing.question import Thresholds
from poolscope.auditing.questions import long, position, short
from poolscope.auditing.questions.pooling import explain
from poolscope.encoders import Progress, as_encoder, pooling_report
from poolscope.encoders.endpoint import as_vector_source
from poolscope.errors import InputError
from poolscope.metrics.length.profile import LengthProfile
from poolscope.metrics.length.report import LengthReport
from poolscope.results import Result, origin, provenance
from poolscope.runtimes.asking import Asked, Declared, ask, compare_declarations, probe_texts
from poolscope.runtimes.causes import Reference
from poolscope.runtimes.match import RuntimeMatch, match_runtime
from poolscope.texts import as_texts
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


# -- a runtime --------------------------------------------------------------------------------------------------------

# Texts of the user that are sent beside the probes.
MOST_TEXTS = 64


@dataclass(frozen=True, repr=False)
class RuntimeCheck(Result):
    """What a runtime did with the probes, beside a reference.

    `match` has every cause that was tried; `verdict` is the judgement, `step` what to do about it and `cost` what that
    costs. `empty` says what came back for an empty text, `declared` what the file that the runtime loads declares.
    """

    runtime: Mapping[str, Any]
    match: RuntimeMatch
    verdict: Verdict
    step: str
    cost: str
    empty: str
    requests: int
    seconds: float
    declared: tuple[Declared, ...] = ()
    probes: tuple[str, ...] = field(default=(), repr=False)
    provenance: Mapping[str, Any] = origin()

    def headline(self) -> dict[str, Any]:
        """The level, the cosine, and what explains best."""
        return {"level": self.verdict.level, **self.match.headline()}

    def seen(self) -> tuple[str, ...]:
        """The judgement, and what to do about it."""
        step = f"{self.step[:1].upper()}{self.step[1:]} ({self.cost})."
        return (self.verdict.sentence, *(() if self.verdict.level == "ok" else (step,)))

    def figure(self) -> Any:
        """The cosine under every cause."""
        return self.match.figure()

    def rows(self) -> list[dict[str, Any]]:
        """One row a cause, the model as declared first."""
        return self.match.rows()


def check_runtime(
    runtime: Any,
    reference: Any,
    texts: Any = None,
    *,
    model: str | None = None,
    served: str | os.PathLike[str] | None = None,
    thresholds: Mapping[str, float] | None = None,
    progress: Progress | None = None,
    endpoint: Mapping[str, Any] | None = None,
    **options: Any,
) -> RuntimeCheck:
    """Does a runtime give the vectors of the model that it is said to run, and if not, what does it do instead?

    Parameters
    ----------
    runtime
        The address of a server that embeds (OpenAI's `/v1/embeddings`, `/embed` of TEI, Ollama's `/api/embed`), an
        `Endpoint`, or an embedding object of LangChain or LlamaIndex.
    reference
        The model: anything `as_encoder` takes (a hub name, a folder, an `.onnx` or `.gguf` file).
    texts
        Texts of your own, up to 64 of which are sent beside the built-in probes.
    model
        The name by which the server knows the model.
    served
        The file or folder that the runtime loads: what it declares is compared with the reference.
    thresholds
        Thresholds of the question `pooling` that are set anew, by name.
    progress
        Called after every request with the number of texts.
    endpoint
        Further fields of `Endpoint`, such as `batch`, `concurrency`, `key_variable` or `timeout`.
    **options
        Those of the reference, such as `role`, `prompt` or `max_length`.

    Returns
    -------
    RuntimeCheck
        The verdict, the cause that explains the vectors best beside its runner-up, and all that were tried.

    Examples
    --------
    >>> class Same:
    ...     def embed_documents(self, texts):
    ...         return [[float(len(text)), 1.0] for text in texts]
    >>> check_runtime(Same(), lambda texts: [[[float(len(text)), 1.0]] for text in texts]).verdict.level
    'ok'

    """
    limits = thresholds if isinstance(thresholds, Thresholds) else Thresholds(thresholds)
    settings = _settings(endpoint, model)
    encoder = as_encoder(reference, **options)
    source = as_vector_source(runtime, **settings).resolved()
    declared = () if served is None else compare_declarations(served, encoder.card)
    probes = _probes(texts, list(encoder.card.prompts.values()))
    replies = ask(source, probes, progress=progress)
    probes = list(replies.texts)
    match = match_runtime(
        encoder,
        probes,
        replies.vectors,
        batches=replies.batches,
        repeated=replies.repeated,
        batched=replies.batched,
        same=limits["pooling_same"],
    )
    finding = explain(match, limits, ids=[_short(text) for text in probes], pooling=Reference(encoder, None).pooling)
    origin_of = provenance(settings={"thresholds_changed": limits.changed})
    return RuntimeCheck(
        runtime=source.to_dict(),
        match=match,
        verdict=_with_evidence(finding.verdict, replies, declared, pooling_report(encoder).notes(of_reference=True)),
        step=finding.step,
        cost=finding.cost,
        empty=replies.empty,
        requests=replies.requests,
        seconds=round(replies.seconds, 3),
        declared=declared,
        probes=tuple(probes),
        provenance={**origin_of, "reference": encoder.card.to_dict(), "runtime": source.to_dict()},
    )


def _settings(endpoint: Any, model: str | None) -> dict[str, Any]:
    """The fields of `Endpoint` that are set, the name of the model among them."""
    if not isinstance(endpoint, Mapping | None) or not all(isinstance(name, str) for name in endpoint or {}):
        raise InputError(
            f"endpoint: received {type(endpoint).__name__}; allowed: a dict of fields of Endpoint by their names, such "
            f"as {{'timeout': 10}}. Pass one."
        )
    return {**(endpoint or {}), **({} if model is None else {"model": model})}


def _probes(texts: Any, prompts: list[str]) -> list[str]:
    """The built-in probes, and up to 64 of the user's own texts, drawn evenly."""
    listed = [] if texts is None else list(as_texts(texts))
    for number, text in enumerate(listed):
        if not isinstance(text, str):
            raise InputError(
                f"texts: entry {number} is of type {type(text).__name__}; allowed: strings. Pass the texts."
            )
    own = [text for text in listed if text.strip()]
    drawn = [own[k] for k in np.linspace(0, len(own) - 1, min(len(own), MOST_TEXTS)).astype(int)] if own else []
    return list(dict.fromkeys([*probe_texts(prompts), *drawn]))


def _with_evidence(verdict: Verdict, replies: Asked, declared: tuple[Declared, ...], notes: tuple[str, ...]) -> Verdict:
    again = (
        f"The same request again: cosine {replies.repeated:.4f} or more; the same text alone: {replies.batched:.4f} or "
        f"more; an empty text: {replies.empty}."
    )
    if replies.refused:
        shortest = min(len(text.split()) for text in replies.refused)
        again += (
            f" {len(replies.refused)} texts, of {shortest:,} words and more, are refused as too long, so that what the "
            f"server does with such texts is not known."
        )
    differing = tuple(f"Declared otherwise: {row}." for row in declared if row.differs)
    return replace(verdict, evidence=(*differing, *verdict.evidence, again, *notes))


def _short(text: str) -> str:
    words = " ".join(text.split())
    return repr(words if len(words) <= 24 else f"{words[:23]}…")
