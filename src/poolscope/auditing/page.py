"""The page of an audit, one file without scripts: the result of the search, the next step, then every miss."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from importlib import resources
from operator import itemgetter
from typing import Any

from poolscope import __version__
from poolscope.auditing.map import drawing
from poolscope.auditing.misses import MOST_MISSES, Inside, Miss
from poolscope.auditing.result import Audit, Finding
from poolscope.auditing.rule import WHY
from poolscope.auditing.screen import LEVEL_WORDS, intervals_line, subject
from poolscope.auditing.words import count, interval_text, number_text, percent, score, signed
from poolscope.errors import require
from poolscope.evaluation.matches import shown_token
from poolscope.evaluation.paired import CureTrial
from poolscope.numbers.intervals import Estimate
from poolscope.results import plain
from poolscope.show.charts import COLOURS, GREY, panel
from poolscope.words import clean

FOLDED = 20
"""Missed queries in the list; all others fold into its last line, so that a page of many stays short."""
_COLOURS, _LEFT = 4, 5  # the colours of cures in the bar, and that of what none finds
_WIDTH = 200.0  # of the drawing of an interval


def audit_page(audit: Audit) -> str:
    """The page as a string. Texts are data: they are escaped, and a policy in the page forbids every request."""
    trials = sorted((*audit.trials, *audit.yardsticks), key=lambda trial: -trial.gain.value_or_raise)
    scale = _Scale(trials)
    decision = audit.decision
    content: dict[str, Any] = {
        "title": f"poolscope: {str(audit.model['name']).rpartition('/')[2]}",
        "style": _asset("audit.css"),
        "subject": subject(audit).split(" · "),
        "headline": audit.sentences(),
        "quality": list(_quality(audit)),
        "intervals": intervals_line(audit) if audit.queries else "",
        "parts": list(_parts(audit)),
        "beside": _beside(audit),
        "missed": audit.missed,
        "decision": decision.in_words(),
        "kind": decision.kind,
        "command": decision.command,
        "causes": [_cause(audit, finding) for finding in audit.looked],
        "unlooked": [(finding.title, finding.sentence) for finding in audit.unlooked],
        "trials": [_trial(audit, trial, scale) for trial in trials],
        "zero": scale.at(0.0),
        "k": audit.rule.k,
        "level": percent(audit.rule.level),
        "folded": FOLDED,
        "map": _map(audit),
        "misses": [_miss(audit, miss) for miss in audit.misses[:MOST_MISSES]],
        "more_misses": len(audit.misses) > MOST_MISSES,
        "threshold": None if audit.threshold is None else audit.threshold.in_words(),
        "notes": audit.notes,
        "facts": _facts(audit),
        "version": __version__,
    }
    return str(_template().render(content))


def _template() -> Any:
    jinja2 = require("jinja2", "report")
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: clean(value) if type(value) is str else value,
    )
    return environment.from_string(_asset("audit.html"))


def _asset(name: str) -> str:
    return (resources.files("poolscope.auditing") / "assets" / name).read_text(encoding="utf-8")


def _quality(audit: Audit) -> Iterator[tuple[str, str, str]]:
    """The numbers of the search below the headline."""
    if not audit.queries:
        return
    k = audit.rule.k
    rows = ((f"nDCG@{k}", audit.ndcg), (f"recall@{k}", audit.recall), (f"MRR@{k}", audit.mrr))
    for label, share in (("Queries found", audit.found), ("relevant texts found", audit.relevant_found)):
        yield label, number_text(share, "percent"), interval_text(share, "percent")
    for label, number in rows:
        yield label, number_text(number, "score"), interval_text(number, "score")


def _parts(audit: Audit) -> Iterator[dict[str, Any]]:
    """The parts of the bar: queries found, and missed ones, by the cure that finds them."""
    if not audit.queries or audit.ledger is None:
        return
    colours = Counter(_colours(audit).values())
    explained = audit.ledger.explained(audit.gaining)[: _COLOURS - 1]
    words = {
        0: f"found in the top {audit.rule.k:,}",
        **{1 + k: f"missed; found by {audit.labels[each.name]}" for k, each in enumerate(explained)},
        _COLOURS: "missed; found by other cures",
        _LEFT: "missed; found by no cure that finds more than it loses",
    }
    counts = {**colours, 0: audit.queries - audit.missed}
    for colour, name in words.items():
        if number := counts.get(colour, 0):
            yield {"words": name, "count": number, "colour": colour, "width": round(100 * number / audit.queries, 2)}


def _colours(audit: Audit) -> dict[int, int]:
    """The part of the bar that each missed query is in: the first cures that add some, the others, or none."""
    if audit.ledger is None:
        return {}
    found = enumerate(audit.ledger.explained(audit.gaining), start=1)
    by_cure = {query: min(place, _COLOURS) for place, each in found for query in each.queries}
    return {query: by_cure.get(query, _LEFT) for query in audit.ledger.misses().tolist()}


def _map(audit: Audit) -> dict[str, Any] | None:
    """The drawing of the map, with the misses that are opened."""
    return None if audit.map is None else drawing(audit.map, audit.misses[:MOST_MISSES], _colours(audit))


def _beside(audit: Audit) -> list[tuple[str, int]]:
    if not audit.missed or audit.ledger is None:
        return []
    return [(audit.labels[name], len(audit.ledger.rescued(name))) for name in audit.ledger.yardsticks]


def _cause(audit: Audit, finding: Finding) -> dict[str, Any]:
    number, loss = finding.number, finding.loss
    evidence = [_evidence(audit, trial) for trial in audit.trials if trial.name in finding.cures]
    if finding.affected and loss is not None and loss.value is not None:
        costs = f"{number_text(loss, 'percent')} {interval_text(loss, 'percent')}"
        evidence.insert(0, f"{finding.marked} That costs {costs} of all relevant texts.")
    if finding.examples:
        evidence.append(finding.examples)
    shown, zero = (number_text(Estimate(value), finding.form) for value in (number.floor if number else None, 0.0))
    return {
        "title": finding.title,
        "sentence": finding.sentence,
        "why": "" if finding.reason == "no symptom" else WHY[finding.reason],
        "evidence": evidence,
        "number": "" if number is None else number_text(number, finding.form),
        "around": "" if number is None else interval_text(number, finding.form),
        "label": finding.label,
        "floor": "" if shown in ("–", zero) else f"{finding.floor} {shown}",
        "level": finding.level,
        "word": LEVEL_WORDS[finding.level],
    }


def _evidence(audit: Audit, trial: CureTrial) -> str:
    """What a cure changes, in one line."""
    change = f"{number_text(trial.gain, 'signed')} {interval_text(trial.gain, 'signed')}".rstrip()
    moved = f"{len(trial.rescued):,} found, {len(trial.broken):,} lost"
    return f"{audit.labels.get(trial.name, trial.name)}: nDCG@{audit.rule.k} {change}; {moved}{_part(audit, trial)}."


def _part(audit: Audit, trial: CureTrial) -> str:
    """On how many queries a cure was tried, where that was a part."""
    return f", tried on {count(trial.queries, 'query')}" if trial.queries < audit.queries else ""


class _Scale:
    """Where a change stands in the drawing; all drawings of a page share one."""

    def __init__(self, trials: list[CureTrial]) -> None:
        ends = [0.0] + [value for trial in trials for value in _ends(trial)]
        self._low, self._high = min(ends), max(ends)
        room = max(self._high - self._low, 1e-6) * 0.04
        self._low, self._high = self._low - room, self._high + room

    def at(self, value: float) -> float:
        """The place of a value."""
        return round(_WIDTH * (value - self._low) / (self._high - self._low), 1)


def _ends(trial: CureTrial) -> tuple[float, ...]:
    around = trial.gain.interval
    return (trial.gain.value_or_raise,) if around is None else (around.low, around.high)


def _trial(audit: Audit, trial: CureTrial, scale: _Scale) -> dict[str, Any]:
    around = trial.gain.interval
    return {
        "label": audit.labels.get(trial.name, trial.name),
        "yardstick": trial in audit.yardsticks,
        "change": number_text(trial.gain, "signed"),
        "around": interval_text(trial.gain, "signed"),
        "at": scale.at(trial.gain.value_or_raise),
        "low": None if around is None else scale.at(around.low),
        "high": None if around is None else scale.at(around.high),
        "proven": trial.proven,
        "rescued": len(trial.rescued),
        "broken": len(trial.broken),
        "part": _part(audit, trial),
    }


def _miss(audit: Audit, miss: Miss) -> dict[str, Any]:
    # What most relevant texts have tells none apart.
    most = audit.corpus["answers"] / 2
    titles = {each.cause: each.title.lower() for each in audit.findings if (each.affected or 0) <= most}
    return {
        "query": miss.query,
        "rank": f"{miss.rank:,}",
        "text_id": miss.text_id,
        "text": miss.text,
        "score": score(miss.score),
        "needed": score(miss.needed),
        "truncated": f"{miss.truncated:,}" if miss.truncated else "",
        "symptoms": ", ".join(titles[name] for name in miss.symptoms if name in titles),
        "inside": None if miss.inside is None else _inside(miss.inside),
        "before": [
            {"rank": each.rank, "id": each.id, "text": each.text, "score": score(each.score), "why": each.why}
            for each in miss.before
        ],
        "ranks": [
            (audit.labels.get(name, name), f"{rank:,.0f}")
            for name, rank in sorted(miss.ranks.items(), key=itemgetter(1))
        ],
    }


def _inside(inside: Inside) -> dict[str, Any]:
    """What the query finds in the text: both scores, and for each token two bars in percent of a cosine of 1."""
    most = max(inside.matches, key=lambda match: match.contribution)
    return {
        "maxsim": score(inside.maxsim),
        "cosine": score(inside.cosine),
        "most": shown_token(most.token),
        "rest": signed(inside.rest),
        "tokens": [
            {
                "token": shown_token(match.token),
                "match": shown_token(match.match),
                "part": signed(match.contribution),
                "bars": [
                    (name, round(100 * max(value, 0.0)), score(value))
                    for name, value in (("own", match.similarity), ("mean", match.to_mean))
                ],
            }
            for match in inside.matches
        ],
    }


def _facts(audit: Audit) -> list[tuple[str, str]]:
    """The provenance as names and values."""
    origin: Mapping[str, Any] = plain(audit.provenance)
    shown = {**{name: origin[name] for name in ("poolscope", "created", "settings") if name in origin}, **audit.corpus}
    return [(name, str(value)) for name, value in shown.items() if value is not None]


def gains_figure(audit: Audit) -> Any:
    """The gain of every cure and yardstick in nDCG@k with its interval (plotly)."""
    trials = sorted((*audit.trials, *audit.yardsticks), key=lambda trial: trial.gain.value_or_raise)
    names = [audit.labels.get(trial.name, trial.name) for trial in trials]
    ends = [_ends(trial) for trial in trials]
    gains = [trial.gain.value_or_raise for trial in trials]
    bars = {
        "type": "scatter",
        "mode": "markers",
        "x": gains,
        "y": names,
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [end[-1] - gain for end, gain in zip(ends, gains, strict=True)],
            "arrayminus": [gain - end[0] for end, gain in zip(ends, gains, strict=True)],
            "color": GREY,
        },
        "marker": {"color": COLOURS[0], "size": 9},
    }
    title = f"What we tried: change of nDCG@{audit.rule.k}"
    return panel(bars, title=title, across=f"change of nDCG@{audit.rule.k}", along="")
