"""Data sets of the hub, without the hub."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from poolscope.errors import InputError, MissingExtraError
from poolscope.texts import read_texts


def fake_hub(monkeypatch: pytest.MonkeyPatch, result: object, *, streamed: bool = False) -> list[tuple[object, ...]]:
    calls: list[tuple[object, ...]] = []

    def load_dataset(name: str, config: str | None, **options: object) -> object:
        calls.append((name, config, options.pop("split")))
        assert options == {"streaming": streamed, "trust_remote_code": False}
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    return calls


def test_hub_data_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    labels = datasets.ClassLabel(names=["bad", "good"])
    features = datasets.Features({"sentence": datasets.Value("string"), "label": labels})
    data = datasets.Dataset.from_dict({"sentence": ["s", "t", "u"], "label": [1, 0, -1]}, features=features)
    calls = fake_hub(monkeypatch, data)
    texts = read_texts("hub:org/name/config:test[:3]", label_column="label")
    assert calls == [("org/name", "config", "test[:3]")]
    assert (texts.texts, texts.labels) == (("s", "t", "u"), ("good", "bad", "-1"))
    assert texts.source == "hub:org/name/config:test[:3]"
    assert read_texts("org/name:train").source == "hub:org/name:train"
    assert calls[1] == ("org/name", None, "train")
    assert read_texts(data.select([2, 0])).texts == ("u", "s")
    fake_hub(monkeypatch, datasets.DatasetDict(only=data))
    assert len(read_texts("hub:name")) == 3
    fake_hub(monkeypatch, datasets.DatasetDict(train=data, test=data))
    with pytest.raises(InputError, match=r"splits 'train', 'test'.*hub:NAME:SPLIT"):
        read_texts("hub:name")
    streamed = read_texts(data.to_iterable_dataset(), label_column="label")
    assert (streamed.texts, streamed.labels) == (("s", "t", "u"), ("good", "bad", "-1"))
    fake_hub(monkeypatch, data.to_iterable_dataset(), streamed=True)
    assert read_texts("stream:org/name:train").source == "stream:org/name:train"


def test_hub_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    fake_hub(monkeypatch, ConnectionError("no route\ndetails"))
    with pytest.raises(InputError, match=r"org/name: .*\(no route\)"):
        read_texts("org/name")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(InputError, match=r"hub:org/name .* HF_HUB_OFFLINE"):
        read_texts("hub:org/name")
    with pytest.raises(InputError, match="'hub:a/b/c/d'"):
        read_texts("hub:a/b/c/d")
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="data/mistyped"):
        read_texts("data/mistyped")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtraError, match=r"poolscope\[hub\]"):
        read_texts("hub:org/name")
