"""Notes for a reader of clouds, in plain words: the model's pooling, truncated texts, unknown tokens."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from poolscope.clouds import TokenClouds
from poolscope.clouds.token_clouds import check_clouds
from poolscope.encoders.base import KEEPS_TOKENS, EncoderOptions, ModelCard, TokenEncoder, resolve_prompt
from poolscope.encoders.capabilities import is_encoder, options_of
from poolscope.encoders.pooling import MEAN_ONLY, MODES, TextPooling, modules_after
from poolscope.errors import InputError, shorten
from poolscope.results import Result
from poolscope.texts.groups import plain_text

# Of the texts that became identical a note names so many; the report has them all.
_SHOWN_GROUPS, _SHOWN_IDS, _LONG_ID = 3, 5, 40


@dataclass(frozen=True, repr=False)
class PoolingReport(Result):
    """The pooling that a model declares, beside the pooling that poolscope does.

    `faithful` says whether the mean of a cloud is the model's own pooled vector, before the modules in `after`
    (None where the model declares no pooling).
    """

    model: str
    declared: tuple[str, ...]
    used: str
    faithful: bool | None
    after: tuple[str, ...]
    include_prompt: bool
    prompt: str
    prompts: tuple[str, ...]
    declared_max_length: int | None
    max_length: int | None
    role: str | None = None

    def notes(self, *, of_reference: bool = False, vectors: TextPooling | None = None) -> tuple[str, ...]:
        """The report in sentences, most important first.

        They are about clouds, unless `vectors` says what makes the vectors that are looked at. `of_reference`: the
        vectors of a runtime are set beside the model's own, and the texts that the model cuts are told from those of
        the runtime.
        """
        cut = "The reference truncates texts" if of_reference else "Texts are truncated"
        if vectors is not None:
            pooling = self._vector_notes(vectors)
        elif of_reference:
            pooling = self._reference_notes()
        else:
            pooling = (*self._pooling_notes(), *self._after_notes())
        return (*pooling, *self._prompt_notes(), *self._length_notes(cut))

    def in_words(self) -> tuple[str, ...]:
        """The report in sentences."""
        return self.notes()

    def derived(self) -> dict[str, Any]:
        """The sentences."""
        return {"notes": self.notes()}

    def warning(self) -> str | None:
        """What must not be missed, or None: the numbers are of a mean that is not, or may not be, the model's own."""
        return None if self.faithful else self._pooling_notes()[0]

    def _pooling_notes(self) -> tuple[str, ...]:
        if not self.declared:
            return ("The model declares no pooling. It is treated as mean pooling over all its tokens.",)
        if len(self.declared) > 1:
            joined = " + ".join(self.declared)
            return (f"The model joins several poolings end to end ({joined}). The numbers {MEAN_ONLY}.",)
        mode = self.declared[0]
        if mode == KEEPS_TOKENS:
            return (
                "The model pools nothing: it keeps a vector for each token and scores by MaxSim. The numbers describe "
                "its tokens and their mean, a vector that it never uses.",
            )
        return (
            MODES[mode].meaning() if mode in MODES else f"The model pools by {mode!r}, which poolscope does not know.",
        )

    def _reference_notes(self) -> tuple[str, ...]:
        """How the model makes its vectors, and nothing of clouds."""
        known = len(self.declared) == 1 and self.declared[0] in MODES
        pooled = MODES[self.declared[0]].words if known else self._pooling_notes()[0]
        changing = modules_after(self.after)
        return (pooled, f"After pooling the model applies {', '.join(changing)}.") if changing else (pooled,)

    def _vector_notes(self, vectors: TextPooling) -> tuple[str, ...]:
        """The notes where vectors are measured: then few numbers or none describe means."""
        if vectors.own is False:
            return vectors.notes
        if not self.declared:
            return self._pooling_notes()
        pooled, changing = MODES[self.declared[0]].words, ", ".join(modules_after(self.after))
        if not changing:
            return (pooled,)
        return (pooled, f"After pooling the model applies {changing}, and the vectors went through it.")

    def _after_notes(self) -> tuple[str, ...]:
        changing = modules_after(self.after)
        if not changing:
            return ()
        return (
            f"After pooling the model applies {', '.join(changing)}; the clouds are the tokens before that, so "
            f"distances between its final vectors differ from those of the means.",
        )

    def _prompt_notes(self) -> tuple[str, ...]:
        if self.role is not None and not self.prompt:
            return (f"The model declares no prompt for the role {self.role!r}; none was put before the texts.",)
        if self.prompt:
            fate = (
                "are part of the cloud, as in the model"
                if self.include_prompt
                else "are left out of the cloud, as in the model"
            )
            return (f"The prompt {self.prompt!r} is put before every text; its tokens {fate}.",)
        if self.prompts:
            names = ", ".join(self.prompts)
            return (
                f"The model declares prompts ({names}) and none is used; --role or --prompt-name (role, prompt_name) "
                f"picks one.",
            )
        return ()

    def _length_notes(self, cut: str) -> tuple[str, ...]:
        if self.max_length is None:
            return ("The model declares no maximal length.",)
        if self.declared_max_length in (None, self.max_length):
            return (f"{cut} at {self.max_length} tokens, as the model declares.",)
        return (f"{cut} at {self.max_length} tokens; the model declares {self.declared_max_length}.",)


def pooling_report(encoder: TokenEncoder) -> PoolingReport:
    """The pooling, prompts and length that a model declares, beside what poolscope does.

    Parameters
    ----------
    encoder
        What `as_encoder` gives.

    Returns
    -------
    PoolingReport
        The declared pooling and whether the mean is it, the prompts, the lengths; `notes` says it in sentences.

    Examples
    --------
    >>> from poolscope import as_encoder
    >>> pooling_report(as_encoder("builtin:wordllama")).declared
    ('mean',)

    """
    if not is_encoder(encoder):
        raise InputError(f"encoder: received {shorten(encoder)}; needed: what as_encoder gives. Open it first.")
    return _of_card(encoder.card, options_of(encoder))


def _of_card(card: ModelCard, options: EncoderOptions) -> PoolingReport:
    return PoolingReport(
        model=card.name,
        declared=card.pooling,
        used="mean",
        faithful=card.pooling == ("mean",) if card.pooling else None,
        after=card.after,
        include_prompt=card.include_prompt,
        prompt=resolve_prompt(card, options),
        prompts=tuple(sorted(name for name, text in card.prompts.items() if text)),
        declared_max_length=card.max_length,
        max_length=options.max_length or card.max_length,
        role=options.role,
    )


@dataclass(frozen=True, repr=False)
class TruncationReport(Result):
    """What was cut off because texts were too long.

    `identical` groups the positions of different texts whose tokens became the same by it, `identical_ids` their ids.
    """

    texts: int
    cut_texts: int
    tokens_kept: int
    tokens_lost: int
    identical: tuple[tuple[int, ...], ...]
    identical_ids: tuple[tuple[str, ...], ...] = ()

    @property
    def share_lost(self) -> float:
        """Lost tokens as a share of all, in [0, 1]."""
        return self.tokens_lost / (self.tokens_kept + self.tokens_lost)

    def notes(self) -> tuple[str, ...]:
        """The report in sentences; one when nothing was cut."""
        if not self.cut_texts:
            return ("No text is truncated.",)
        texts = f"{self.cut_texts:,} of {self.texts:,} texts ({self.cut_texts / self.texts:.1%})"
        notes = [
            f"Truncated: {texts}. The model never reads {self.tokens_lost:,} tokens ({self.share_lost:.1%} of all)."
        ]
        if self.identical:
            many, groups = sum(len(group) for group in self.identical), len(self.identical)
            notes.append(
                f"{many:,} different texts became identical by it, in {groups:,} group{'s' if groups > 1 else ''}: no "
                f"measure can tell them apart. Split long texts, or raise --max-length (max_length) if the model "
                f"allows it."
            )
            notes.append(f"Identical after truncation, by id: {self._groups()}.")
        return tuple(notes)

    def _groups(self) -> str:
        """The first groups; all of them are in `identical_ids`."""
        shown = [_listed(group, _SHOWN_IDS, " = ") for group in self.identical_ids[:_SHOWN_GROUPS]]
        more = len(self.identical_ids) - len(shown)
        return "; ".join(shown) + (f"; and {more:,} more group{'s' if more > 1 else ''}" if more else "")

    def in_words(self) -> tuple[str, ...]:
        """The report in sentences."""
        return self.notes()

    def derived(self) -> dict[str, Any]:
        """The share and the sentences."""
        return {"share_lost": self.share_lost, "notes": self.notes()}


def _listed(names: tuple[str, ...], most: int, between: str) -> str:
    """The first names; a long name is shortened, so that a line stays a line."""
    shown = [name if len(name) <= _LONG_ID else f"{name[: _LONG_ID - 1]}…" for name in names[:most]]
    return between.join(shown) + (f"{between}… ({len(names):,} texts)" if len(names) > most else "")


def truncation_report(clouds: TokenClouds) -> TruncationReport:
    """Count the truncated texts of some clouds, and the tokens that they lost.

    Texts count as different when they differ in more than letter case and blanks. Without token ids on the
    clouds the groups of identical texts are unknown and empty.

    Parameters
    ----------
    clouds : TokenClouds
        Of any model and layer.

    Returns
    -------
    TruncationReport
        Texts and tokens that were cut, and the texts that became identical by it.

    Examples
    --------
    >>> clouds = TokenClouds.from_arrays([[[1.0, 0.0]], [[0.0, 2.0], [1.0, 1.0]]], truncated=[0, 3])
    >>> report = truncation_report(clouds)
    >>> report.cut_texts, report.tokens_lost
    (1, 3)

    """
    clouds = check_clouds(clouds, "truncation_report")
    cut, ids = clouds.truncated, clouds.ids
    identical = _identical(clouds) if cut.any() else ()
    return TruncationReport(
        texts=len(clouds),
        cut_texts=int((cut > 0).sum()),
        tokens_kept=int(clouds.lengths.sum()),
        tokens_lost=int(cut.astype(np.int64).sum()),
        identical=identical,
        identical_ids=tuple(tuple(ids[k] for k in group) for group in identical),
    )


def _identical(clouds: TokenClouds) -> tuple[tuple[int, ...], ...]:
    cut, texts = clouds.truncated, clouds.texts
    lengths_of_cut = set(clouds.lengths[cut > 0].tolist())
    groups: dict[bytes, list[int]] = defaultdict(list)
    for position in np.flatnonzero(np.isin(clouds.lengths, list(lengths_of_cut))):
        ids = clouds.token_ids(int(position))
        if ids is not None:
            groups[ids.tobytes()].append(int(position))
    shared = [group for group in groups.values() if len(group) > 1 and cut[group].any()]
    if texts is not None:
        shared = [group for group in shared if len({plain_text(texts[k]) for k in group}) > 1]
    return tuple(tuple(group) for group in shared)


def cloud_notes(clouds: TokenClouds, *, vectors: TextPooling | None = None) -> list[str]:
    """All that ready clouds know of themselves: their texts, the model's pooling, what was cut off, unknown tokens.

    Where their provenance holds no card of a model (arrays of one's own) nothing is said of its pooling. `vectors` as
    `PoolingReport.notes` takes it.
    """
    origin = clouds.provenance
    notes = list(_of(origin, "texts").get("notes", ()))
    card = _of(origin, "model")
    if {"name", "kind", "dimension", "pooling"} <= card.keys():
        notes += _of_card(_known(ModelCard, card), _known(EncoderOptions, _of(origin, "options"))).notes(
            vectors=vectors
        )
    return [*notes, *truncation_report(clouds).notes(), *unknown_notes(clouds)]


def unknown_notes(clouds: TokenClouds) -> list[str]:
    """A sentence on the tokens that a static table lacked and that are in no cloud; none where it knew them all."""
    origin = clouds.provenance
    unknown = _of(origin, "unknown")
    if not unknown.get("tokens"):
        return []
    met = unknown["tokens"] + int(clouds.lengths.sum())
    name = _of(origin, "model").get("name", "The table")
    return [
        f"{name} does not know {unknown['tokens']:,} tokens ({unknown['tokens'] / met:.1%}) in {unknown['texts']:,} of "
        f"{len(clouds):,} texts; they were left out."
    ]


def _of(origin: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """An entry of a provenance, which may have been written by anyone."""
    value = origin.get(name)
    return value if isinstance(value, Mapping) else {}


def _known(kind: type[Any], values: Mapping[str, Any]) -> Any:
    """A card or options from what a provenance kept of them; lists become tuples again."""
    names = {field.name for field in fields(kind)}
    plain = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    return kind(**{name: value for name, value in plain.items() if name in names})
