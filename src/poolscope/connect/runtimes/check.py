"""Does a server give the vectors of the model that it is said to run, and if not, what does it do instead?"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from poolscope.auditing.words import fill
from poolscope.connect.runtimes.asking import Declared, ask, compare_declarations, probe_texts
from poolscope.connect.runtimes.match import RuntimeMatch, match_runtime
from poolscope.encoders import Progress, as_encoder, pooling_report
from poolscope.encoders.sources import as_vector_source
from poolscope.errors import InputError
from poolscope.results import Result, origin, provenance
from poolscope.show.verdicts import Level
from poolscope.texts import as_texts

MOST_TEXTS = 64
"""Texts of the user that are sent beside the probes."""

_SAME = "The server gives the vectors of the model: the lowest cosine of {texts:count text} is {least:score}."
_EXPLAINED = (
    "The server does not do what the model declares. This explains its vectors: {cause} (cosine {cosine:score})."
)
_UNKNOWN = "The server gives other vectors than the model (cosine {own:score}). No cause that we tried explains them."
_SOME = "The server gives other vectors than the model for {count:count} of {texts:count text}."
_ORDER = "The server returns the vectors in another order than the texts: they are {order}."
_DECLARED = "With the model as declared, its vectors agree to a cosine of {own:score}."
_UNSTABLE = "The same request twice gives other vectors (cosine {repeated:score})."
_BATCHED = "The vector of a text depends on the texts beside it in a request (cosine {batched:score})."
RUNTIME_WORDS = (_SAME, _EXPLAINED, _UNKNOWN, _SOME, _ORDER, _DECLARED, _UNSTABLE, _BATCHED)


@dataclass(frozen=True, repr=False)
class RuntimeCheck(Result):
    """What a runtime did with the probes, beside a reference.

    `match` has every cause that was tried; `level` is "ok" or "fix". `empty` says what came back for an empty text,
    `declared` what the file that the runtime loads declares.
    """

    runtime: Mapping[str, Any]
    match: RuntimeMatch
    level: Level
    empty: str
    requests: int
    seconds: float
    refused: int = 0
    declared: tuple[Declared, ...] = ()
    notes: tuple[str, ...] = ()
    probes: tuple[str, ...] = field(default=(), repr=False)
    provenance: Mapping[str, Any] = origin()

    def headline(self) -> dict[str, Any]:
        """The level, the cosine, and what explains best."""
        return {"level": self.level, **self.match.headline()}

    def in_words(self) -> tuple[str, ...]:
        """What the server does, in words."""
        match, cause = self.match, self.match.cause
        rest = match.rest
        values: dict[str, Any] = {"own": match.own.mean, "texts": match.texts, "least": match.own.least}
        if self.level == "ok":
            return (fill(_SAME, values),)
        sentences = []
        if match.order is not None:
            sentences.append(fill(_ORDER, {"order": "shuffled" if match.by_row is None else match.by_row.order}))
        elif cause is not None:
            sentences += [fill(_EXPLAINED, {"cause": cause.name, "cosine": cause.mean}), fill(_DECLARED, values)]
        elif 0 < len(match.differ) < match.texts:
            sentences.append(fill(_SOME, {"count": len(match.differ), "texts": match.texts}))
            if rest is not None and rest.cause is not None:
                sentences.append(fill(_EXPLAINED, {"cause": rest.cause.name, "cosine": rest.cause.mean}))
        else:
            sentences.append(fill(_UNKNOWN, values))
        if match.repeated is not None and match.repeated < match.same:
            sentences.append(fill(_UNSTABLE, {"repeated": match.repeated}))
        if match.batched is not None and match.batched < match.same:
            sentences.append(fill(_BATCHED, {"batched": match.batched}))
        return tuple(sentences)

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
    progress
        Called after every request with the number of texts, and after every cause that is tried.
    endpoint
        Further fields of `Endpoint`, such as `batch`, `concurrency`, `key_variable` or `timeout`.
    **options
        Those of the reference, such as `role`, `prompt` or `max_length`.

    Returns
    -------
    RuntimeCheck
        The level, the cause that explains the vectors best beside its runner-up, and all that were tried.

    Examples
    --------
    >>> class Same:
    ...     def embed_documents(self, texts):
    ...         return [[float(len(text)), 1.0] for text in texts]
    >>> check_runtime(Same(), lambda texts: [[[float(len(text)), 1.0]] for text in texts]).level
    'ok'

    """
    settings = _settings(endpoint, model)
    encoder = as_encoder(reference, **options)
    source = as_vector_source(runtime, **settings).resolved()
    declared = () if served is None else compare_declarations(served, encoder.card)
    replies = ask(source, _probes(texts, list(encoder.card.prompts.values())), progress=progress)
    probes = list(replies.texts)
    match = match_runtime(
        encoder,
        probes,
        replies.vectors,
        batches=replies.batches,
        repeated=replies.repeated,
        batched=replies.batched,
        progress=progress,
    )
    return RuntimeCheck(
        runtime=source.to_dict(),
        match=match,
        level=level_of(match),
        empty=replies.empty,
        requests=replies.requests,
        seconds=round(replies.seconds, 3),
        refused=len(replies.refused),
        declared=declared,
        notes=pooling_report(encoder).notes(of_reference=True),
        probes=tuple(probes),
        provenance={**provenance(settings={}), "reference": encoder.card.to_dict(), "runtime": source.to_dict()},
    )


def level_of(match: RuntimeMatch) -> Level:
    """`fix` where vectors are not the model's: of some texts, in another order, or changing from call to call."""
    unsteady = any(cosine is not None and cosine < match.same for cosine in (match.repeated, match.batched))
    return "fix" if match.differ or match.order is not None or unsteady else "ok"


def _settings(endpoint: Any, model: str | None) -> dict[str, Any]:
    """The fields of `Endpoint` that are set, the name of the model among them."""
    if not isinstance(endpoint, Mapping | None) or not all(isinstance(name, str) for name in endpoint or {}):
        raise InputError(
            f"endpoint: received {type(endpoint).__name__}; allowed: a dict of fields of Endpoint by their names, such "
            f"as {{'timeout': 10}}."
        )
    return {**(endpoint or {}), **({} if model is None else {"model": model})}


def _probes(texts: Any, prompts: list[str]) -> list[str]:
    """The built-in probes, and up to 64 of the user's own texts, drawn evenly."""
    listed = [] if texts is None else list(as_texts(texts))
    for number, text in enumerate(listed, start=1):
        if not isinstance(text, str):
            raise InputError(
                f"texts: entry {number} is of type {type(text).__name__}; allowed: strings. Pass the texts."
            )
    own = [text for text in listed if text.strip()]
    drawn = [own[k] for k in np.linspace(0, len(own) - 1, min(len(own), MOST_TEXTS)).astype(int)] if own else []
    return list(dict.fromkeys([*probe_texts(prompts), *drawn]))
