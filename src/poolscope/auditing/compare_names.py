"""What audits that are compared are called, and what tells them apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from poolscope.charts.files import short_name
from poolscope.numbers.intervals import Interval

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def audit_names(models: Sequence[str], folders: Sequence[str | None]) -> list[str]:
    """Short names that tell the audits apart.

    That of a model without its owner, if that is enough; with its owner where two models end alike; with its folder
    where audits are of one model; and with a number where nothing else helps.

    >>> audit_names(["org/a", "org/b"], [None, None])
    ['a', 'b']
    >>> audit_names(["org/a", "other/a", "org/a"], ["runs/one", None, "runs/two"])
    ['org/a · one', 'other/a', 'org/a · two']
    >>> audit_names(["org/a", "org/a"], [None, None])
    ['a (1)', 'a (2)']
    """
    short = [short_name(model) or model for model in models]
    alike = len(set(short)) < len(set(models))
    names = list(models) if alike else short
    for part in (_last_part, str):
        named = [
            f"{name} · {part(folder)}" if folder is not None and names.count(name) > 1 else name
            for name, folder in zip(names, folders, strict=True)
        ]
        if len(set(named)) == len(named):
            return named
    return [f"{name} ({number})" if names.count(name) > 1 else name for number, name in enumerate(names, 1)]


def _last_part(folder: str) -> str:
    return Path(folder).resolve().name


def differing_facts(documents: Sequence[Mapping[str, Any]], folders: Sequence[str | None]) -> dict[str, list[Any]]:
    """The model, the folder and the time of each audit, and of its settings those that are not the same in all."""
    known = [_settings(document) for document in documents]
    names = list(dict.fromkeys(name for settings in known for name in settings))
    facts: dict[str, list[Any]] = {
        "model": [document["model"]["name"] for document in documents],
        "folder": list(folders),
        "created": [document.get("provenance", {}).get("created") for document in documents],
    }
    facts |= {name: [settings.get(name) for settings in known] for name in names}
    kept = ("model", "folder", "created")
    return {
        name: values
        for name, values in facts.items()
        if (name in kept and any(value is not None for value in values)) or any(value != values[0] for value in values)
    }


def _settings(document: Mapping[str, Any]) -> dict[str, Any]:
    """What the audit was run with, flat: what the model declares, how it encoded, settings and thresholds."""
    provenance = document.get("provenance", {})
    clouds = provenance.get("clouds") or [{}]
    parts = {
        "": {name: value for name, value in document["model"].items() if name != "name"},
        "encoded with ": clouds[0].get("options") or {},
        "setting ": {**provenance.get("settings", {})},
        "threshold ": document["thresholds"],
    }
    flat = {f"{prefix}{name}": value for prefix, part in parts.items() for name, value in part.items()}
    flat.pop("setting thresholds_changed", None)  # the thresholds say it
    return {name: _short(value) for name, value in flat.items()}


def _short(value: Any) -> Any:
    if isinstance(value, str) and len(value) > 40:  # a digest of the weights
        return f"{value[:12]}…"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or None
    return str(value) if isinstance(value, Mapping) else value


def common_number(answers: Sequence[Mapping[str, Any]]) -> str | None:
    """What the numbers of all answers to one question are; None where they are not the same thing.

    Answers without a number do not count, unless none has one.

    >>> rate, cosine = ({"number_name": name, "value": 0.5} for name in ("hit rate", "cosine"))
    >>> common_number([rate, rate]), common_number([rate, cosine]), common_number([rate, {**cosine, "value": None}])
    ('hit rate', None, 'hit rate')
    """
    counted = [answer for answer in answers if answer["value"] is not None]
    names = {answer["number_name"] for answer in counted or answers}
    return names.pop() if len(names) == 1 else None


def excludes_zero(interval: Interval | None) -> bool | None:
    """Does the interval of a difference tell that there is one? None where there is no interval.

    >>> excludes_zero(Interval(0.1, 0.2, 0.95, "texts", "bootstrap")), excludes_zero(None)
    (True, None)
    """
    return None if interval is None else interval.low > 0 or interval.high < 0
