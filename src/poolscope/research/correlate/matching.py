"""Which model of one source is which of another: by name, nothing dropped without being named."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from poolscope.errors import InputError
from poolscope.research.correlate.model_records import ModelRecord, ModelRecords
from poolscope.research.correlate.published import BY_NAME


@dataclass(frozen=True)
class JoinedModel:
    """One model that has metrics and scores."""

    name: str
    family: str
    metrics: dict[str, float]
    scores: dict[str, float]
    traits: dict[str, float]

    def control(self, name: str) -> float | None:
        """A number to control for: a trait, else a metric, else a score."""
        return next((part[name] for part in (self.traits, self.metrics, self.scores) if name in part), None)


@dataclass(frozen=True)
class Joined:
    """The models of both sources, and those that only one of them has."""

    models: tuple[JoinedModel, ...]
    only_metrics: tuple[str, ...]
    only_scores: tuple[str, ...]
    families_given: bool


def join(metrics: ModelRecords, scores: ModelRecords) -> Joined:
    """Match the models of two sources.

    Names are equal without regard to case, with `org__model` for `org/model`; an alias counts as a name. A name without
    an organisation stands for the one model that has it as the last part of its name. The family is that of the tables,
    else the backbone that the SOCM paper gives, else the model itself.
    """
    found: dict[str, ModelRecord] = {}
    models = []
    for record in metrics.records:
        partner = _partner(record, scores)
        if partner is None:
            continue
        if partner.name in found:
            raise InputError(
                f"{partner.name} ({scores.source}) goes with {found[partner.name].name} and with {record.name}; a "
                f"model is one point. Give full names, or put one of them in the column 'aliases' of its row."
            )
        found[partner.name] = record
        models.append(
            JoinedModel(
                name=record.name,
                family=record.family or partner.family or _published_family(record, partner) or record.name,
                metrics=dict(record.numbers),
                scores=dict(partner.numbers),
                traits={**partner.traits, **record.traits},
            )
        )
    matched = {record.name for record in found.values()}
    return Joined(
        models=tuple(models),
        only_metrics=tuple(record.name for record in metrics.records if record.name not in matched),
        only_scores=tuple(record.name for record in scores.records if record.name not in found),
        families_given=any(model.family != model.name for model in models),
    )


def _partner(record: ModelRecord, others: ModelRecords) -> ModelRecord | None:
    """The one record of the other source that is this model; None if there is none."""
    names = _names(record)
    for same in (_equal, _equal_last_part):
        found = [other for other in others.records if any(same(a, b) for a in names for b in _names(other))]
        if len(found) > 1:
            raise InputError(
                f"{record.name} may be any of {', '.join(other.name for other in found)} ({others.source}). Give its "
                f"full name, or name it in the column 'aliases' of the right row."
            )
        if found:
            return found[0]
    return None


def _names(record: ModelRecord) -> list[str]:
    return [normal_name(name) for name in (record.name, *record.aliases)]


def normal_name(name: str) -> str:
    """The form in which names are compared.

    >>> normal_name("Intfloat__e5-base-v2")
    'intfloat/e5-base-v2'
    """
    return name.strip().rstrip("/").replace("__", "/", 1).lower()


def _equal(a: str, b: str) -> bool:
    return a == b


def _equal_last_part(a: str, b: str) -> bool:
    """Equal last parts, where at least one of the two names has no organisation."""
    return ("/" not in a or "/" not in b) and a.rpartition("/")[2] == b.rpartition("/")[2]


def _published_family(*records: ModelRecord) -> str | None:
    families = {normal_name(name): model.family for name, model in BY_NAME.items()}
    known: Iterable[str] = (name for record in records for name in _names(record))
    return next((families[name] for name in known if name in families), None)


def listed(names: Iterable[str]) -> str:
    """Names for a message."""
    return ", ".join(names) or "none"
