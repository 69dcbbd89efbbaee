"""Texts beside images, on a tiny CLIP with random weights: against its own features, and where the gap is built in."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

from command_line import run
from poolscope import modalities, socm
from poolscope.connect.modalities import TextImageModel
from poolscope.errors import InputError, ModelError
from tiny_models import SPECIAL, TEXTS, WORDS, tiny_model, tiny_tokenizer

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
LISTED = [*TEXTS, "a blue tree and a red mat"]


def pictures(count=6):
    random = np.random.default_rng(0)
    return [Image.fromarray(random.integers(0, 255, size=(20, 24, 3), dtype=np.uint8)) for _ in range(count)]


@pytest.fixture(scope="module")
def clip():
    torch.manual_seed(0)
    ids = {"vocab_size": len(SPECIAL) + len(WORDS), "bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
    config = transformers.CLIPConfig(
        text_config={**SIZES, **ids, "max_position_embeddings": 24},
        vision_config={**SIZES, "image_size": 16, "patch_size": 8},
        projection_dim=12,
    )
    model = transformers.CLIPModel(config).eval()
    with torch.no_grad():
        for weights in model.parameters():
            if weights.ndim > 1:
                weights.normal_(std=0.3)
    side = {"height": 16, "width": 16}
    images = transformers.models.clip.image_processing_pil_clip.CLIPImageProcessorPil(size=side, crop_size=side)
    return model, transformers.CLIPProcessor(image_processor=images, tokenizer=tiny_tokenizer(model_max_length=24))


def features(clip, name, inputs):
    with torch.inference_mode():
        made = getattr(clip[0], name)(**inputs)
    return getattr(made, "pooler_output", made).numpy()


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def own_vectors(clip):
    texts = clip[1].tokenizer(LISTED, padding=True, return_tensors="pt")
    images = clip[1].image_processor(images=pictures(), return_tensors="pt")
    return unit(features(clip, "get_text_features", texts)), unit(features(clip, "get_image_features", images))


def test_vectors_are_those_of_the_model_and_clouds_hold_them(clip):
    both = TextImageModel(clip)
    texts, images = own_vectors(clip)
    tokens, text_vectors = both.texts(LISTED)
    patches, image_vectors = both.images(pictures())
    np.testing.assert_allclose(text_vectors, texts, atol=1e-5)
    np.testing.assert_allclose(image_vectors, images, atol=1e-5)
    assert patches.lengths.tolist() == [5] * len(LISTED)
    assert tokens.lengths.tolist() == [len(text.split()) + 2 for text in LISTED]
    for cloud, vector in zip(tokens, texts, strict=True):  # one of the tokens is the vector of the text
        assert (unit(np.asarray(cloud)) @ vector).max() == pytest.approx(1, abs=1e-5)


def test_gap_and_distances_by_hand(clip):
    result = modalities(clip, LISTED, pictures())
    texts, images = own_vectors(clip)
    assert result.gap.value == pytest.approx(np.linalg.norm(texts.mean(axis=0) - images.mean(axis=0)), abs=1e-5)
    assert 0 < result.gap.floor < result.gap.value
    both = TextImageModel(clip)
    tokens, patches = both.texts(LISTED)[0], both.images(pictures())[0]
    across = socm(tokens, patches, pairs=[(k, k) for k in range(len(LISTED))])
    row = result["text and its image"]
    assert (row.socm.value, row.d_mu) == pytest.approx((across.mean, across.mean_distance))
    assert row.cosine.value == pytest.approx((texts * images).sum(axis=1).mean(), abs=1e-5)
    assert result["texts"].d_sigma == pytest.approx(socm(tokens).covariance_distance)
    cosines = texts @ images.T
    assert result.found.value == pytest.approx(np.mean(cosines.argmax(axis=1) == np.arange(len(LISTED))))
    assert len(result.figure().data) == 3
    assert type(result).from_dict(result.to_dict(arrays=True)).to_dict() == result.to_dict()


def test_taking_the_means_off_closes_a_gap_that_hides_the_order(clip, monkeypatch):
    """Both sides alike but for an offset and unequal lengths: with the offset one image is nearest to every text."""
    random = np.random.default_rng(1)
    same = random.normal(size=(len(LISTED), 12))
    offset = np.zeros(12)
    offset[0] = 4
    texts, images = unit(0.3 * same + offset), unit(0.3 * same - offset)
    real = TextImageModel.texts, TextImageModel.images
    monkeypatch.setattr(TextImageModel, "texts", lambda self, listed: (real[0](self, listed)[0], texts))
    monkeypatch.setattr(TextImageModel, "images", lambda self, listed: (real[1](self, listed)[0], images))
    result = modalities(clip, LISTED, pictures())
    assert result.gap.value > 1.9
    assert result.found_without_gap.value == 1
    assert result.found_without_gap.value >= result.found.value


def test_the_command_reads_a_folder_and_a_table(clip, tmp_path):
    model, processor = clip
    model.save_pretrained(tmp_path / "clip")
    processor.save_pretrained(tmp_path / "clip")
    rows = ["text,image"]
    for k, (text, image) in enumerate(zip(LISTED, pictures(), strict=True)):
        image.save(tmp_path / f"{k}.png")
        rows.append(f"{text},{k}.png")
    (tmp_path / "captions.csv").write_text("\n".join(rows))
    screen = run(
        "lab", "modalities", tmp_path / "clip", tmp_path / "captions.csv", "--json", tmp_path / "out.json",
        "--figure", tmp_path / "out.html",
    )  # fmt: skip
    content = json.loads((tmp_path / "out.json").read_text())
    expected = modalities(clip, LISTED, pictures())
    assert content["gap"]["value"] == pytest.approx(expected.gap.value, abs=1e-5)
    assert content["provenance"]["settings"]["revision"]
    assert "text and its image" in screen
    assert (tmp_path / "out.html").stat().st_size > 1000


def test_what_has_no_two_sides_is_refused(clip):
    with pytest.raises(InputError, match="received 2 for 6 texts"):
        modalities(clip, LISTED, pictures(2))
    with pytest.raises(ModelError, match="without text_model"):
        modalities((tiny_model("Bert"), tiny_tokenizer()), LISTED, pictures())
