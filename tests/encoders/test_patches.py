"""Patches of images and frames of sound, from tiny models with random weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers

from poolscope import encode, layers, socm, tempscale, windows
from poolscope.encoders.patches import PatchEncoder
from poolscope.errors import InputError, PoolscopeError
from tiny_models import tiny_model, tiny_tokenizer

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
VISION = {**SIZES, "image_size": 16, "patch_size": 8}
FAMILIES = {
    "ViT": ("ViTModel", "ViTConfig", 5),  # four patches and a class token
    "CLIP": ("CLIPVisionModel", "CLIPVisionConfig", 5),
    "SigLIP": ("SiglipVisionModel", "SiglipVisionConfig", 4),
    "DINOv2": ("Dinov2Model", "Dinov2Config", 5),
}


def pictures(count=3):
    random = np.random.default_rng(0)
    return [random.integers(0, 255, size=(20, 24, 3), dtype=np.uint8) for _ in range(count)]


def processor():
    side = {"height": 16, "width": 16}
    return transformers.models.vit.image_processing_pil_vit.ViTImageProcessorPil(size=side)


def vision(family):
    model, config, _ = FAMILIES[family]
    torch.manual_seed(0)
    return getattr(transformers, model)(getattr(transformers, config)(**VISION)).eval()


@pytest.mark.parametrize("family", FAMILIES)
def test_patches_are_the_hidden_states(family):
    model = vision(family)
    clouds = encode((model, processor()), images=pictures())
    assert clouds.lengths.tolist() == [FAMILIES[family][2]] * 3
    inputs = processor()(images=pictures(), return_tensors="pt")
    with torch.inference_mode():
        expected = model(**inputs).last_hidden_state.numpy()
    np.testing.assert_allclose(np.stack(list(clouds)), expected, atol=1e-6)
    assert set(encode((model, processor()), images=pictures(), layers=[0, 1, -1])) == {0, 1, -1}
    assert socm(clouds).mean >= 0
    assert windows(clouds, ratios=[2]).at(2).lost.value > 0


def whisper():
    torch.manual_seed(0)
    config = transformers.WhisperConfig(
        d_model=16, encoder_layers=2, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
        encoder_ffn_dim=32, decoder_ffn_dim=32, num_mel_bins=16, max_source_positions=50, vocab_size=20,
        max_target_positions=8, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    return transformers.WhisperModel(config).eval(), transformers.WhisperFeatureExtractor(16, chunk_length=1)


def test_frames_of_silence_behind_a_sound_are_left_out():
    model, extractor = whisper()
    sounds = [np.sin(np.arange(n) / 20).astype(np.float32) for n in (16000, 8000)]
    clouds = encode((model, extractor), audio=sounds)
    assert clouds.lengths.tolist() == [50, 25]
    inputs = extractor(sounds, sampling_rate=16000, return_tensors="pt")
    with torch.inference_mode():
        expected = model.get_encoder()(inputs["input_features"]).last_hidden_state.numpy()
    np.testing.assert_allclose(clouds[1], expected[1, :25], atol=1e-6)
    assert PatchEncoder(model, extractor, kind="audio", name="tiny").card.layers == 2


def test_a_folder_holds_both(tmp_path):
    model = vision("ViT")
    model.save_pretrained(tmp_path)
    processor().save_pretrained(tmp_path)
    clouds = encode(tmp_path, images=pictures())
    np.testing.assert_allclose(clouds[0], encode((model, processor()), images=pictures())[0], atol=1e-6)
    from PIL import Image

    Image.fromarray(pictures()[0]).save(tmp_path / "picture.png")
    again = encode(tmp_path, images=[tmp_path / "picture.png"])
    np.testing.assert_allclose(again[0], clouds[0], atol=1e-6)
    assert again.ids[0].endswith("picture.png")


def test_what_needs_attention_is_refused_in_our_words():
    encoder = PatchEncoder(vision("ViT"), processor(), kind="images", name="tiny")
    for refused in (lambda: layers(encoder, ["a text"]), lambda: tempscale(encoder, 0.5).__enter__()):
        with pytest.raises(PoolscopeError, match=r"kind 'images'|no attention"):
            refused()


@pytest.mark.parametrize(
    ("inputs", "word"),
    [
        ({}, "holds no texts"),
        ({"texts": ["a"], "images": [1]}, "needed: one of them"),
        ({"images": []}, "at least one"),
        ({"images": "picture.png"}, "a list"),
        ({"images": ["picture.png"]}, "cannot be read"),
        ({"audio": [np.zeros((2, 3))]}, "reads pixel_values"),
    ],
)
def test_wrong_inputs_are_refused(inputs, word):
    with pytest.raises(PoolscopeError, match=word):
        encode((vision("ViT"), processor()), **inputs)
    with pytest.raises(InputError, match="entry 0 has shape"):
        encode(whisper(), audio=[np.zeros((2, 3))])


def test_a_model_of_texts_reads_no_images():
    with pytest.raises(PoolscopeError, match="reads input_ids"):
        encode((tiny_model("Bert"), tiny_tokenizer()), images=pictures())
