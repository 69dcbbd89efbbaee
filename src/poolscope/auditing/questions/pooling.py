"""Did my runtime do what this model was trained with?

With the vectors of a runtime at hand the answer names the cause that explains them (`poolscope.runtimes`): as the model
declares, another pooling, prompt, truncation, …, another order, some texts, or none. Each cause has its own step: a
shuffled table needs sorting, not another pooling.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from poolscope.auditing.question import Action, Answer, Gauge, Number, Question, TableView, Threshold
from poolscope.auditing.subject import Subject
from poolscope.charts import dots_figure
from poolscope.encoders.base import EncoderOptions, resolve_prompt
from poolscope.encoders.pooling import modules_after, named_pooling
from poolscope.encoders.reports import PoolingReport
from poolscope.numbers.intervals import Estimate, bootstrap_interval
from poolscope.numbers.ranking import nearest_neighbours
from poolscope.runtimes.causes import WEIGHTS, Reference
from poolscope.runtimes.match import SAME, RuntimeMatch, Tested, match_runtime
from poolscope.verdicts import Level, Verdict

Array = NDArray[np.float64]

_NEIGHBOURS = 10
# Texts whose neighbours are compared.
_MOST_TEXTS = 2000
_AGAIN = "encode every text again with the right setting; no new model"
_LIKE_THESE = "encode texts like these again; no new model"
_NAMED = 3
# The numbers of an audit that are of token clouds, whatever vectors the model makes of them.
_OF_CLOUDS = "SOCM and the hidden share (question 8)"
_BARS = 8


def answer(subject: Subject) -> Answer:
    """What the runtime's vectors tell; without them what a wrong pooling would cost."""
    if subject.runtime is not None:
        return _of_runtime(subject)
    if subject.clouds.lengths.max() == 1 or len(subject) < 3:
        return Answer.unchecked(
            "pooling", "texts of a single token, or fewer than three texts, are the same in every pooling"
        )
    if subject.text_pooling.own is False:
        return _unknown_vectors(subject)
    reference = Reference(subject.encoder, subject.texts, clouds=subject.clouds)
    # The modules behind the pooling stand behind every other pooling too.
    tables = {name: reference.finished(table) for name, table in reference.pooled(subject.clouds).items()}
    kept = {name: _kept_neighbours(subject, table) for name, table in tables.items() if name != subject.pooling}
    title = f"Neighbours that survive another pooling than {subject.pooling}"
    likely = "mean" if subject.pooling != "mean" else "max" if subject.card.kind == "static" else "cls"
    return Answer(
        "pooling",
        _declared(subject, likely, kept[likely]),
        {"pooling": subject.pooling, "wrong_pooling_keeps": kept[likely].value},
        _check_runtime(subject),
        number_name=f"neighbours left if pooled by {likely}",
        tables={"poolings": _table(kept)},
        draw={"pooling": lambda: dots_figure(kept, title=title, reference=kept[likely].floor)},
    )


def _unknown_vectors(subject: Subject) -> Answer:
    """The answer where the model's own vectors cannot be computed: nobody knows then what a wrong pooling costs."""
    judged, declared = judge(subject.pooling_report, subject.thresholds), _declaration(subject)
    sentence = (
        f"The model declares {declared}, which cannot be computed here: the answers about vectors are about the means "
        f"of its tokens. What your runtime does was not checked: hand in its vectors (--vectors)."
    )
    notes = subject.pooling_report.notes(vectors=subject.text_pooling, of_clouds=_OF_CLOUDS)
    verdict = Verdict(judged.level, sentence, evidence=notes, basis=judged.basis)
    numbers = {"pooling": named_pooling(subject.card.pooling), "wrong_pooling_keeps": None}
    return Answer("pooling", verdict, numbers, _check_runtime(subject))


def _check_runtime(subject: Subject) -> Action:
    return Action(
        "configure",
        "check prompt and pooling of your runtime against what the model declares",
        _with_prompt(subject),
        "a setting of the runtime; vectors made with a wrong one must be made again",
    )


def _declaration(subject: Subject) -> str:
    """What the model declares, with the modules behind its pooling."""
    pooling = named_pooling(subject.card.pooling) if subject.card.pooling else subject.pooling
    return ", then ".join([f"{pooling} pooling", *modules_after(subject.card.after)])


def _declared(subject: Subject, likely: str, kept: Estimate) -> Verdict:
    """The verdict on the declaration, with what a wrong pooling would cost."""
    declared = "declares" if subject.card.pooling else "declares no pooling; taken as"
    cost = f"; a runtime that pools by {likely} instead would keep {kept.value:.0%} of the ten nearest neighbours"
    if len(subject) <= _NEIGHBOURS + 1:
        cost = ""  # everyone is everyone's neighbour
    sentence = (
        f"The model {declared} {_declaration(subject)}{cost}. What yours does was not checked: hand in its vectors "
        f"(--vectors)."
    )
    judged = judge(subject.pooling_report, subject.thresholds)
    notes = subject.pooling_report.notes(vectors=subject.text_pooling, of_clouds=_OF_CLOUDS)
    return Verdict(judged.level, sentence, kept.value, kept.interval, kept.floor, notes, judged.basis)


def _unclear(report: PoolingReport) -> bool:
    further = any(module != "Normalize" for module in report.after)
    return not report.declared or len(report.declared) > 1 or further or (bool(report.prompts) and not report.prompt)


def _with_prompt(subject: Subject) -> str | None:
    """The audit with the prompt that the model declares for documents; None if it has none, or one was chosen."""
    chosen = {"prompt", "prompt_name", "role"} & set(subject.named.options) or subject.pooling_report.prompt
    if chosen or not resolve_prompt(subject.card, EncoderOptions(role="document")):
        return None
    return subject.command("audit", role="document")


def _kept_neighbours(subject: Subject, table: Array) -> Estimate:
    """Share of the ten nearest neighbours that stay under another pooling; by chance k/(N − 1) of them would."""
    drawn = np.sort(np.random.default_rng(subject.seed).permutation(len(table))[:_MOST_TEXTS])
    k = min(_NEIGHBOURS, len(drawn) - 1)
    right, other = (nearest_neighbours(vectors[drawn], k)[0] for vectors in (subject.vectors, table))
    shared = (right[:, :, None] == other[:, None, :]).any(axis=2).mean(axis=1)
    return Estimate(float(shared.mean()), bootstrap_interval(shared, seed=subject.seed), k / (len(drawn) - 1))


def _table(matches: Mapping[str, Estimate]) -> pa.Table:
    intervals = [match.interval for match in matches.values()]
    return pa.table(
        {
            "pooling": list(matches),
            "value": [match.value for match in matches.values()],
            "low": [None if interval is None else interval.low for interval in intervals],
            "high": [None if interval is None else interval.high for interval in intervals],
            "floor": [match.floor for match in matches.values()],
        }
    )


# -- a runtime's vectors ------------------------------------------------------------------------------------------


def _reference_notes(subject: Subject) -> tuple[str, ...]:
    return subject.pooling_report.notes(of_reference=True, vectors=subject.text_pooling, of_clouds=_OF_CLOUDS)


def _of_runtime(subject: Subject) -> Answer:
    """The answer where the runtime's own vectors are at hand."""
    match = match_runtime(
        subject.encoder,
        subject.texts,
        subject.runtime,
        clouds=subject.clouds,
        same=subject.thresholds["pooling_same"],
        seed=subject.seed,
    )
    finding = explain(match, subject.thresholds, ids=subject.ids, pooling=subject.pooling)
    verdict = judge(match, subject.thresholds, ids=subject.ids, pooling=subject.pooling)
    verdict = replace(verdict, evidence=(*verdict.evidence, *_reference_notes(subject)))
    best = match.best
    named = match.own if match.own.share == 1 else best if best is not None and best.explains else _of_rest(match)
    title = "Cosine of your runtime's vectors with what each cause would give"
    shown = {test.name: test.cosine for test in (match.own, *match.others[:_BARS])}
    return Answer(
        "pooling",
        verdict,
        {
            "pooling": subject.pooling,
            "runtime_cause": None if named is None else named.name,
            "runtime_cosine": replace(match.own.cosine, value=match.own.mean),
            "runtime_best_cosine": (best or match.own).mean,
            "runtime_normalised": match.normalised,
        },
        Action(
            "configure",
            finding.step,
            subject.command("audit") if "vectors" in subject.named.settings else None,
            finding.cost,
        ),
        tables={"causes": match.to_table(), **_lengths_table(subject, match)},
        draw={"pooling": lambda: dots_figure(shown, title=title, reference=match.own.cosine.floor)},
    )


def _lengths_table(subject: Subject, match: RuntimeMatch) -> dict[str, pa.Table]:
    """The vectors to be brought to length 1, where the others have it."""
    if not match.other_lengths:
        return {}
    rows = list(match.other_lengths)
    lengths = np.linalg.norm(np.asarray(subject.runtime, dtype=np.float64)[rows], axis=1)
    return {"runtime_lengths": pa.table({"id": [subject.ids[k] for k in rows], "length": lengths})}


@dataclass(frozen=True)
class Finding:
    """What a runtime did: how serious and in words, what to do about it, and what that costs."""

    verdict: Verdict
    step: str
    cost: str


def judge(
    measured: RuntimeMatch | PoolingReport,
    thresholds: Mapping[str, float],
    *,
    ids: list[str] | None = None,
    pooling: str = "",
) -> Verdict:
    """The verdict on the vectors of a runtime beside its reference; without any, on what the model declares.

    A declaration is `watch` where it leaves something open that changes the vectors; otherwise nothing was checked.
    """
    if isinstance(measured, RuntimeMatch):
        return explain(measured, thresholds, ids=ids, pooling=pooling).verdict
    return Verdict("watch", basis="declared") if _unclear(measured) else Verdict("unchecked")


def explain(
    match: RuntimeMatch, thresholds: Mapping[str, float], *, ids: list[str] | None = None, pooling: str = ""
) -> Finding:
    """The verdict, the step and its cost; `ids` name the texts, `pooling` is what the model declares."""
    finding = _cause(match, thresholds["pooling_match"], ids or [str(k) for k in range(match.texts)], pooling)
    own, judged = match.own.cosine, finding.verdict
    verdict = Verdict(judged.level, judged.sentence, own.value, own.interval, own.floor, _evidence(match), judged.basis)
    return replace(finding, verdict=verdict)


def _cause(match: RuntimeMatch, least: float, ids: list[str], pooling: str) -> Finding:
    """The first that holds, from what makes all else doubtful to what is left when nothing explains the vectors."""
    best = match.best
    if not match.whole:
        return _unknown_end(match)
    if match.repeated is not None and match.repeated < match.same:
        return _changing(match.repeated, least, "asked again in the same way", "not deterministic")
    if match.constant and match.own.share < 1:
        return _constant(match)
    if best is not None and best.explains:
        return _named(match, best, least)
    if match.order is not None:
        return _shuffled(match, pooling)
    if match.batched is not None and match.batched < match.same:
        return _changing(match.batched, least, "asked among other texts", "batch dependent")
    if match.own.share == 1:
        return _as_declared(match, pooling, ids)
    if _of_rest(match) is not None:
        return _some_texts(match, least, ids)
    if best is not None and _nearly(match, best, least):
        return _named(match, best, least)
    if match.bits is not None and not _clearly_nearer(match, best):
        return _few_bits(match, *match.bits, least)
    if match.own.share >= 0.5 or match.rest is not None:
        return _some_texts(match, least, ids)
    if match.own.mean >= least:
        return _near(match)
    return _no_match(match, least)


def _nearly(match: RuntimeMatch, best: Tested, least: float) -> bool:
    """A cause that leaves only what rounded weights leave: a quarter of the distance, half of the runner-up's."""
    second = match.second
    left = 1 - best.mean
    return best.mean >= least and 4 * left <= 1 - match.own.mean and (second is None or 2 * left <= 1 - second.mean)


def _of_rest(match: RuntimeMatch) -> Tested | None:
    """What explains most of the vectors that differ, where the others are exactly the model's own."""
    cause = None if match.rest is None else match.rest.cause
    return cause if cause is not None and cause.share >= 0.5 else None


def _clearly_nearer(match: RuntimeMatch, best: Tested | None) -> bool:
    """Does a cause other than rounded weights take a quarter of what is left? By chance one of many takes a little."""
    return best is not None and best.kind != WEIGHTS and 1 - best.mean < 0.75 * (1 - match.own.mean)


def _below(match: RuntimeMatch, least: float, sentence: str) -> Verdict:
    """`repair` where all of the interval of the mean cosine is below what rounding explains."""
    interval = match.own.cosine.interval
    if match.own.mean >= least:
        return Verdict("watch", sentence, basis="estimate")
    if interval is None:
        return Verdict("repair", sentence, basis="no interval")
    if interval.high < least:
        return Verdict("repair", sentence, basis="interval")
    return Verdict("watch", sentence, basis="estimate")


def _as_declared(match: RuntimeMatch, pooling: str, ids: list[str]) -> Finding:
    """The model's own vectors; how they are stored, or their lengths, may still change a ranking."""
    how = f" ({pooling} pooling)" if pooling else ""
    own = f"Your runtime does as the model declares{how}: cosine {_digits(match.own.mean)}."
    level: Level = "ok"
    step, cost = "nothing", "nothing"
    if match.coarse and match.plain < match.same:
        level = "watch"
        own = (
            f"Your runtime's vectors are the model's own, {match.form}: cosine {_digits(match.plain)} with the others."
        )
        step, cost = "ask your runtime for plain numbers, if the ranking matters more than the room", _AGAIN
    elif match.cut:
        level = "watch"
        own = f"{own} They are {match.form}, which only models that were trained for it allow (Matryoshka)."
        step, cost = "ask your runtime for all dimensions, unless the model was trained to be cut", _AGAIN
    elif match.coarse:
        own += f" They are {match.form}."
    elif "Normalize" in match.provenance["reference"]["after"] and not match.normalised:
        level = "watch"
        cost, whose, which = "no re-encoding: one division a vector", "your runtime does not", "your runtime's vectors"
        if count := len(match.other_lengths):
            which = f"the {count:,} of your runtime's vectors that are shorter or longer"
            whose = (
                f"{count:,} of your runtime's {match.texts:,} ({count / match.texts:.1%}; texts "
                f"{_listed(match.other_lengths, ids)}) do not have the length 1"
            )
        own += f" But the model normalises its vectors and {whose}: search by cosine, not by dot product."
        step = f"search by cosine, or bring {which} to length 1"
    return Finding(Verdict(level, own, basis=None if level == "ok" else "counted"), step, cost)


def _named(match: RuntimeMatch, best: Tested, least: float) -> Finding:
    """One cause, which reproduces the vectors: it is certain, and how serious it is goes by the texts it changes."""
    second = match.second
    runner = "" if second is None else f" (next: {second.name}, {_digits(second.mean)})"
    alone = best.explains or best.kind == WEIGHTS or match.rest is not None  # rounded weights would move every vector
    rest = "" if alone else " What is left is what weights rounded to few bits leave."
    concerned = match.own.mean if match.concerned is None else match.concerned
    whom = "" if match.own.share == 0 else ", over the texts that this changes"
    declared = f"With the vectors that the model declares they agree to {_digits(concerned)} only{whom}."
    if match.own.cosine.value is None:
        declared = "The vectors that the model declares have another dimension."
    sentence = (
        f"Your runtime {best.words}: that explains its vectors to a cosine of {_digits(best.mean)}{runner}. "
        f"{declared}{_alike(match)}{rest}"
    )
    level: Level = "repair" if concerned < least else "watch"
    return Finding(Verdict(level, sentence, basis="counted"), f"{best.step}, then encode again", _AGAIN)


def _alike(match: RuntimeMatch) -> str:
    """The causes that could be meant as well as the best."""
    return f" Not to be told apart on these texts: {', '.join(match.alike[:_NAMED])}." if match.alike else ""


def _few_bits(match: RuntimeMatch, bits: int, cosine: float, least: float) -> Finding:
    """Nothing that changes texts, tokens or pooling comes nearer, and rounded weights would leave as much."""
    sentence = (
        f"Your runtime runs the model with weights rounded to about {bits} bits, as far as can be told: cosine "
        f"{_digits(match.own.mean)}, lowest {_digits(match.own.least)}. With its weights rounded to {bits} bits the "
        f"model agrees with itself to {_digits(cosine)}, and no other cause that was tried comes clearly nearer; "
        f"another revision of the model could leave as much."
    )
    step = "serve the model with 8 or 16 bits a weight, or let the reference be the rounded file itself (.gguf)"
    return Finding(_below(match, least, sentence), step, _AGAIN)


def _changing(cosine: float, least: float, how: str, name: str) -> Finding:
    sentence = (
        f"Your runtime is {name}: the same text, {how}, comes back with another vector (cosine {_digits(cosine)})."
    )
    step = (
        "switch off dropout in your runtime (evaluation mode), and look for several models behind one address"
        if name == "not deterministic"
        else "see how your runtime pads and masks the texts of a request, or send one text a request"
    )
    level: Level = "repair" if cosine < least else "watch"
    return Finding(Verdict(level, sentence, basis="counted"), step, "encode all texts again once that is right")


def _constant(match: RuntimeMatch) -> Finding:
    sentence = (
        f"Your runtime gives the same vector for every text: all {match.texts:,} are equal, so that no search can tell "
        f"texts apart. What the model gives differs (cosine {_digits(match.own.mean)})."
    )
    step = "see whether your runtime has loaded its weights and reads the texts of a request, then encode again"
    return Finding(Verdict("repair", sentence, basis="counted"), step, _AGAIN)


def _shuffled(match: RuntimeMatch, pooling: str) -> Finding:
    shuffled = f"Your runtime's vectors are this model's, pooled by {match.order}, but in another order than the texts"
    step = "put the vectors of your runtime in the order of the texts"
    if not pooling or match.order == pooling:
        verdict = Verdict("repair", f"{shuffled}: sort them as the texts are.", basis="counted")
        return Finding(verdict, step, "no re-encoding: sort the table, or the ids")
    sentence = f"{shuffled}; and the model was trained with {pooling} pooling."
    return Finding(
        Verdict("repair", sentence, basis="counted"),
        f"{step}, set its pooling to {pooling}, and encode again",
        _AGAIN,
    )


def _listed(positions: Sequence[int], ids: list[str]) -> str:
    """The first of some texts by name."""
    return ", ".join(ids[k] for k in positions[:_NAMED]) + (", …" if len(positions) > _NAMED else "")


def _some_texts(match: RuntimeMatch, least: float, ids: list[str]) -> Finding:
    """Most vectors agree, or some exactly, so pooling and model do too: it is about the others."""
    count = len(match.differ)
    listed = _listed(match.differ, ids)
    others = (
        f"{match.texts - count:,} of your runtime's {match.texts:,} vectors are the model's own; {count:,} are not "
        f"(texts {listed})"
    )
    cause = _of_rest(match)
    if cause is not None and match.rest is not None:
        tried = f"{count:,}" if cause.texts == count else f"the {cause.texts:,} of them that were tried"
        sentence = (
            f"{others}: for these your runtime {cause.words}, which explains {round(cause.share * cause.texts):,} of "
            f"{tried} (mean cosine {_digits(cause.mean)}; as declared {_digits(match.rest.own.mean)})."
            f"{_alike(match.rest)}"
        )
        level: Level = "repair" if match.rest.own.mean < least else "watch"
        step = f"{cause.step}, then encode the {count:,} texts whose vectors differ again"
        return Finding(Verdict(level, sentence, basis="counted"), step, _LIKE_THESE)
    sentence = f"{others}, and no cause that was tried explains them: mean cosine {_digits(match.own.mean)}."
    step = f"compare the {count:,} texts whose vectors differ: other words, another limit or prompt"
    return Finding(_below(match, least, sentence), step, _LIKE_THESE)


def _near(match: RuntimeMatch) -> Finding:
    sentence = (
        f"Your runtime's vectors are near the model's, and not the same: cosine {_digits(match.own.mean)}, lowest "
        f"{_digits(match.own.least)}. No cause that was tried comes nearer; weights rounded to few bits look like this."
    )
    step = "see in which precision your runtime holds the weights, and whether its revision of the model is yours"
    return Finding(Verdict("watch", sentence, basis="estimate"), step, _AGAIN)


def _no_match(match: RuntimeMatch, least: float) -> Finding:
    best = match.best or match.own
    sentence = (
        f"No cause that was tried explains your runtime's vectors (nearest: {best.name}, {_digits(best.mean)}): "
        f"another model, or another revision of this one, is likely."
    )
    step = "check the model and its revision in your runtime, then encode again"
    return Finding(_below(match, least, sentence), step, _AGAIN)


def _unknown_end(match: RuntimeMatch) -> Finding:
    declared = match.provenance["reference"]
    modules = ", ".join([*declared["pooling"], *declared["after"]])
    sentence = (
        f"Not checked: the final vectors of this reference cannot be computed here ({modules}); before that step the "
        f"cosine is {_digits(match.own.mean)}."
    )
    step = "hand in a reference whose modules after pooling are kept as safetensors"
    return Finding(Verdict("unchecked", sentence), step, "another check")


def _evidence(match: RuntimeMatch) -> tuple[str, ...]:
    tests = [test for test in (match.own, *match.others[:_BARS]) if test.cosine.value is not None]
    cosines = ", ".join(f"{test.name} {_digits(test.mean)}" for test in tests)
    lengths = f"Their lengths run from {match.shortest:.3g} to {match.longest:.3g}"
    some = f", and {len(match.other_lengths):,} of {match.texts:,} are not 1" if match.other_lengths else ""
    evidence = [
        f"Cosines: {cosines}; with the vector of another text {(match.best or match.own).cosine.floor or 0:.3f}.",
        "They have length 1." if match.normalised else f"{lengths}{some}.",
    ]
    if 0 < len(match.differ) < match.texts / 2:
        evidence.append(
            f"{len(match.differ):,} of {match.texts:,} vectors have a cosine below {match.same:g} with the reference's "
            f"vector of the same text."
        )
    if match.form:
        evidence.append(f"The vectors are {match.form}.")
    if match.untested and match.own.share < 1:
        evidence.append(f"Not tried, because this reference cannot be asked: {', '.join(match.untested)}.")
    return tuple(evidence)


def _digits(cosine: float) -> str:
    """Four digits, and more only where these would round a difference away.

    >>> _digits(0.99996), _digits(0.9908), _digits(1 - 1e-9)
    ('0.99996', '0.9908', '1.0000')
    """
    return f"{cosine:.5f}" if 0.9999 <= cosine < 0.999995 else f"{cosine:.4f}"


QUESTION = Question(
    "pooling",
    title="Pooling",
    words="Did my runtime pool, prompt and cut the way this model was trained?",
    page="runtime.md#what-is-compared",
    number_name="cosine of your runtime's vectors with the model's own",
    answer=answer,
    seconds=0.7,
    judge=judge,
    door="poolscope audit MODEL TEXTS --vectors FILE",
    thresholds=[
        Threshold(
            "pooling_same",
            SAME,
            "Cosine of a runtime's vector with the model's own: rounding to 16 bits and other kernels stay above it.",
        ),
        Threshold(
            "pooling_match",
            0.99,
            "Below it a runtime does something else; above it the difference is small, as that of vectors rounded to 8 "
            "bits or of a short prompt.",
        ),
    ],
    numbers=[
        Number("wrong_pooling_keeps", "neighbours left under a wrong pooling", headline=True, compared=False),
    ],
    gauges=[
        Gauge(
            "runtime_cosine",
            "cosine of your runtime's vectors with the model's own",
            "pooling_same",
            "pooling_match",
            falls=True,
            form=".4f",
        )
    ],
    tables={
        "poolings": TableView("Poolings", 20, {"pooling": "Pooling", "value": "Neighbours kept", "floor": "Floor"}),
        "causes": TableView(
            "Causes", 20, {"cause": "Cause", "cosine": "Cosine", "least": "Lowest", "share": "Share of texts explained"}
        ),
        "runtime_lengths": TableView("Vectors that do not have the length 1", 50, {"id": "Text", "length": "Length"}),
    },
)
