"""An audit on a screen of 80 columns: the headline, the misses, one line a cause, the decision."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from poolscope.auditing.result import Audit, Finding
from poolscope.auditing.words import MOST_LABEL, count, interval_text, number_text
from poolscope.evaluation.paired import CureTrial
from poolscope.show.lines import command_lines, wrapped
from poolscope.show.verdicts import LEVEL_COLOURS, Level

LEVEL_WORDS: dict[Level, str] = {"fix": "Fix", "look": "Look", "ok": "OK", "unchecked": "Unchecked"}
_WIDTH = 80
_TITLE = 18
_LEFT = "by no cure that finds more than it loses"
_LEGEND: dict[Level, str] = {
    "look": "Look: texts with it are missed more often.",
    "unchecked": "Unchecked: too few queries to tell.",
}
_MORE = "For every miss and all evidence: open the page, or add --details."


def screen(audit: Audit, *, details: bool = False) -> Iterator[Any]:
    """What to print, part by part (rich)."""
    from rich.text import Text

    yield Text(wrapped(subject(audit), _WIDTH), style="dim")
    for note in audit.notes:
        yield Text(wrapped(note, _WIDTH, "  "), style="dim")
    yield Text("")
    for place, sentence in enumerate(audit.sentences()):
        yield Text(wrapped(sentence, _WIDTH), style="bold" if place == 0 else "")
    yield from _quality(audit)
    yield from _misses(audit)
    yield from _decision(audit)
    yield from _causes(audit, details=details)
    if details:
        yield from _trials(audit)
    if audit.threshold is not None and details:
        yield Text("\nScore threshold", style="bold")
        for sentence in audit.threshold.in_words():
            yield Text(wrapped(sentence, _WIDTH, "  "))
    if not details:
        yield Text(f"\n{_MORE}", style="dim")


def subject(audit: Audit) -> str:
    """What was audited, in one line."""
    parts = [str(audit.model["name"]).rpartition("/")[2], count(audit.texts, "text")]
    if audit.corpus.get("documents"):
        parts[-1] += f" from {count(audit.corpus['documents'], 'document')}"
    if audit.queries:
        queries = count(audit.queries, "self-made query" if audit.self_made else "query")
        made = f" (from {audit.self_made}s)" if audit.self_made else ""
        parts.append(f"{queries}{made}, {count(audit.corpus['answers'], 'relevant text')}")
    return " · ".join(parts)


def _quality(audit: Audit) -> Iterator[Any]:
    """The numbers of the search, with their intervals."""
    from rich.text import Text

    if not audit.queries:
        return
    k = audit.rule.k
    rows = (
        ("queries found", audit.found, "percent"),
        ("relevant texts found", audit.relevant_found, "percent"),
        (f"nDCG@{k}", audit.ndcg, "score"),
        (f"recall@{k}", audit.recall, "score"),
        (f"MRR@{k}", audit.mrr, "score"),
    )
    yield Text("")
    for label, number, form in rows:
        yield Text(f"  {label:<22}{number_text(number, form):>7}  {interval_text(number, form)}")
    yield Text(f"  {intervals_line(audit)}", style="dim")


def intervals_line(audit: Audit) -> str:
    """What the intervals of the search are over, or why it has none."""
    if audit.ndcg.interval is None:
        return f"{audit.ndcg.no_interval.capitalize()}."
    return f"{audit.rule.level:.0%} intervals over {audit.units:,} {audit.unit}."


def _misses(audit: Audit) -> Iterator[Any]:
    """Table of the missed queries: how many each cure finds, how many it adds, and how many yardsticks find."""
    from rich.text import Text

    if not audit.missed or audit.ledger is None:
        return
    yield Text(f"\nOf {count(audit.missed, 'missed query')}", style="bold")
    adding = False
    for each in audit.ledger.explained(audit.gaining):
        more = " more" if adding else ""
        yield Text(f"{len(each.queries):>5}{more} by {audit.labels[each.name]}")
        adding = True
    left = len(audit.ledger.unexplained(audit.gaining))
    if left:
        yield Text(f"{left:>5} {_LEFT}")
    for name in ("keywords", "best-order"):
        if name in audit.ledger.yardsticks:
            yield Text(f"{len(audit.ledger.rescued(name)):>5} by {audit.labels[name]} (for comparison)", style="dim")


def _decision(audit: Audit) -> Iterator[Any]:
    """The decision in at most five short lines, and its command alone."""
    from rich.text import Text

    decision = audit.decision
    sentences = decision.in_words()
    if not sentences:
        return
    style = LEVEL_COLOURS["fix"] if decision.kind in ("cure", "defect") else "bold"
    yield Text("")
    for place, sentence in enumerate(sentences[:5]):
        yield Text(wrapped(sentence, _WIDTH), style=style if place == 0 else "")
    if decision.command:
        yield Text(command_lines(decision.command, _WIDTH), style="bold")


def _causes(audit: Audit, *, details: bool) -> Iterator[Any]:
    """One line a cause, the most serious first; those that were not looked at in one line at the end."""
    from rich.text import Text

    yield Text("\nCauses", style="bold")
    for finding in audit.looked:
        yield cause_line(finding)
        if details:
            yield Text(wrapped(" ".join(finding.in_words()), _WIDTH, "    "))
            if finding.examples:
                yield Text(wrapped(finding.examples, _WIDTH, "    "), style="dim")
            if finding.cures:
                tried = ", ".join(audit.labels.get(name, name) for name in finding.cures)
                yield Text(wrapped(f"Tried: {tried}.", _WIDTH, "    "), style="dim")
    legend = " ".join(words for level, words in _LEGEND.items() if any(each.level == level for each in audit.looked))
    if legend and not details:
        yield Text(legend, style="dim")
    if audit.unlooked:
        names = ", ".join(finding.title.lower() for finding in audit.unlooked)
        yield Text(wrapped(f"Not looked at: {names}.", _WIDTH), style="dim")
        if details:
            for finding in audit.unlooked:
                yield Text(wrapped(f"{finding.title}: {finding.sentence}", _WIDTH, "    "), style="dim")


def cause_line(finding: Finding) -> Any:
    """The level, the title, the number and what it is: 80 columns at most."""
    from rich.text import Text

    line = Text(f"{LEVEL_WORDS[finding.level]:<10}", style=LEVEL_COLOURS[finding.level])
    shown = "" if finding.number is None else number_text(finding.number, finding.form)
    around = "" if finding.number is None else interval_text(finding.number, finding.form)
    line.append(f"{finding.title:<{_TITLE}}", style="default")
    line.append(f" {shown:>6} {finding.label}", style="default")
    if around and len(line) + len(around) < _WIDTH:
        line.append(f" {around}", style="dim")
    return line


def _line(audit: Audit, trial: CureTrial) -> str:
    """A cure or yardstick: what it changes, and on how many queries where it was tried on a part."""
    change = f"{number_text(trial.gain, 'signed')} {interval_text(trial.gain, 'signed')}"
    part = f" of {trial.queries:,}" if trial.queries < audit.queries else ""
    found = f"+{len(trial.rescued)} −{len(trial.broken)}{part}"
    return f"{audit.labels.get(trial.name, trial.name):<{MOST_LABEL}} {change:<26} {found}"


def _trials(audit: Audit) -> Iterator[Any]:
    """What we tried, by gain; yardsticks below."""
    from rich.text import Text

    for title, trials in (("Cures", audit.trials), ("Yardsticks (no repair)", audit.yardsticks)):
        if not trials:
            continue
        heads = f"{title:<{MOST_LABEL}} {f'gain in nDCG@{audit.rule.k}':<26} found, lost"
        yield Text(f"\n{heads}", style="bold")
        for trial in sorted(trials, key=lambda each: -each.gain.value_or_raise):
            yield Text(_line(audit, trial))


def print_screen(audit: Audit, console: Any, *, details: bool = False) -> None:
    """Print an audit on a console (rich)."""
    for part in screen(audit, details=details):
        console.print(part, soft_wrap=True)  # lines are made already; a longer one is a command or a path


def as_text(audit: Audit, *, details: bool = False) -> str:
    """An audit as plain text, as the command line shows it."""
    from poolscope.show.console import Console

    console = Console(file=io.StringIO(), width=_WIDTH, color_system=None, force_jupyter=False)
    print_screen(audit, console, details=details)
    return str(console.file.getvalue()).rstrip()  # type: ignore[attr-defined]
