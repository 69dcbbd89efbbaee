"""Patches of images and frames of sound, from tiny models with random weights."""

from __future__ import annotations

import json
import os
import re

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

from poolscope import encode, layers, socm, tempscale, windows
from poolscope.connect.patches import PatchEncoder
from poolscope.errors import InputError, ModelError, PoolscopeError
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


def test_raw_samples_are_read_one_sound_at_a_time():
    """No silence is put behind a sound, so that none can change it."""
    shape = {"conv_dim": [8, 8], "conv_stride": [5, 2], "conv_kernel": [10, 3], "num_feat_extract_layers": 2}
    torch.manual_seed(0)
    places = {"num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2}
    model = transformers.Wav2Vec2Model(transformers.Wav2Vec2Config(**SIZES, **shape, **places)).eval()
    sounds = [np.sin(np.arange(n) / 20).astype(np.float32) for n in (800, 400)]
    extractor = transformers.Wav2Vec2FeatureExtractor()
    clouds = encode((model, extractor), audio=sounds)
    assert clouds.lengths.tolist() == [79, 39]
    np.testing.assert_array_equal(clouds[1], encode((model, extractor), audio=sounds[1:])[0])


def test_patches_that_fill_up_an_image_are_left_out():
    torch.manual_seed(0)
    model = transformers.Siglip2VisionModel(
        transformers.Siglip2VisionConfig(**SIZES, patch_size=8, num_patches=16)
    ).eval()
    own = transformers.Siglip2ImageProcessorPil(patch_size=8, max_num_patches=16)
    pictures = [np.zeros((16, side, 3), dtype=np.uint8) for side in (16, 24)]
    masks = own(images=pictures, return_tensors="pt")["pixel_attention_mask"].sum(dim=1).tolist()
    clouds = encode((model, own), images=pictures)
    assert clouds.lengths.tolist() == masks
    assert masks[1] < 16
    with pytest.raises(ModelError, match=r"Siglip2VisionModel.*processor"):
        encode((model, processor()), images=pictures)


def test_a_model_that_hides_patches_is_refused():
    model = transformers.ViTMAEModel(transformers.ViTMAEConfig(**VISION)).eval()
    with pytest.raises(ModelError, match=r"at random \(mask_ratio 0\.75\)"):
        encode((model, processor()), images=pictures())


def test_a_folder_holds_both(tmp_path):
    model = vision("ViT")
    model.save_pretrained(tmp_path)
    processor().save_pretrained(tmp_path)
    clouds = encode(tmp_path, images=pictures())
    np.testing.assert_allclose(clouds[0], encode((model, processor()), images=pictures())[0], atol=1e-6)
    Image.fromarray(pictures()[0]).save(tmp_path / "picture.png")
    again = encode(tmp_path, images=[tmp_path / "picture.png"])
    np.testing.assert_allclose(again[0], clouds[0], atol=1e-6)
    assert again.ids[0].endswith("picture.png")


def test_sizes_that_the_weights_cannot_fill_are_refused(tmp_path):
    vision("ViT").save_pretrained(tmp_path)
    processor().save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "config.json").write_text(json.dumps({**settings, "num_hidden_layers": 10**7}), encoding="utf-8")
    with pytest.raises(ModelError, match=r"config\.json"):
        encode(tmp_path, images=pictures())


def test_what_needs_attention_is_refused_in_our_words():
    for encoder in (
        *(PatchEncoder(vision(family), processor(), kind="images", name="tiny") for family in FAMILIES),
        PatchEncoder(*whisper(), kind="audio", name="tiny"),
    ):
        for refused in (lambda: layers(encoder, ["a text"]), lambda: tempscale(encoder, 0.5).__enter__()):  # noqa: B023
            with pytest.raises(PoolscopeError, match=rf"kind '{encoder.card.kind}'.*(needed|allowed): a"):
                refused()
    for model in (vision("ViT"), whisper()[0]):
        with pytest.raises(ModelError, match=r"reads (pixel_values|input_features); needed"):
            tempscale(model, 0.5).__enter__()


@pytest.mark.parametrize(
    ("inputs", "word"),
    [
        ({}, "no texts"),
        ({"texts": ["a"], "images": [1]}, "texts, images and audio"),
        ({"images": []}, "images: received list"),
        ({"images": "picture.png"}, "a list"),
        ({"images": ["picture.png"]}, r"images: 'picture\.png'"),
        ({"audio": [np.zeros((2, 3))]}, "reads pixel_values"),
    ],
)
def test_wrong_inputs_are_refused(inputs, word):
    with pytest.raises(PoolscopeError, match=word):
        encode((vision("ViT"), processor()), **inputs)
    with pytest.raises(InputError, match=r"entry 0 .*shape"):
        encode(whisper(), audio=[np.zeros((2, 3))])


def test_a_model_of_texts_reads_no_images():
    with pytest.raises(PoolscopeError, match="reads input_ids"):
        encode((tiny_model("Bert"), tiny_tokenizer()), images=pictures())


MODES = ("L", "LA", "P", "1", "I;16", "RGBA", "CMYK", "F")


def in_mode(mode):
    picture = Image.fromarray(pictures()[0])
    return picture.convert("I").convert(mode) if mode == "I;16" else picture.convert(mode)


@pytest.mark.parametrize("mode", MODES)
def test_images_of_every_mode_are_read_in_three_colours(mode):
    model = (vision("ViT"), processor())
    expected = encode(model, images=[in_mode(mode).convert("RGB")])[0]
    np.testing.assert_allclose(encode(model, images=[in_mode(mode)])[0], expected, atol=1e-6)


def closed():
    picture = Image.new("RGB", (4, 4))
    picture.close()
    return picture


NO_IMAGES = {
    "flat": lambda: np.zeros((20, 24), np.uint8),
    "four colours": lambda: np.zeros((20, 24, 4), np.uint8),
    "empty": lambda: np.zeros((0, 24, 3), np.uint8),
    "NaN": lambda: np.full((20, 24, 3), np.nan),
    "object": lambda: np.full((20, 24, 3), None),
    "complex": lambda: np.zeros((20, 24, 3), complex),
    "int": lambda: 5,
    "None": lambda: None,
    "bytes": lambda: b"abc",
    "list": lambda: [[1]],
    "closed": closed,
    "no pixels": lambda: Image.new("RGB", (0, 0)),
    "name": lambda: "a\0",
    "long name": lambda: "a" * 10_000,
    "out of range": lambda: np.full((20, 24, 3), 1e30),
}


@pytest.mark.parametrize("kind", NO_IMAGES)
def test_what_is_no_image_is_refused(kind):
    with pytest.raises(InputError, match=r"^images: ") as caught:
        encode((vision("ViT"), processor()), images=[NO_IMAGES[kind]()])
    assert "\n" not in str(caught.value)


def test_files_that_are_no_images_are_refused(tmp_path, monkeypatch):
    model = (vision("ViT"), processor())
    Image.new("RGB", (40, 40)).save(tmp_path / "large.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    (tmp_path / "damaged.png").write_bytes((tmp_path / "large.png").read_bytes()[:50])
    names = ["large.png", "damaged.png", "."]
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        names.append("pipe")
    for name in names:
        with pytest.raises(InputError, match=rf"images: .*{re.escape((tmp_path / name).name)}.* \("):
            encode(model, images=[tmp_path / name])


@pytest.mark.parametrize("wrong", [len, print, lambda **_: {"pixel_values": 5}, lambda **_: {}, tiny_tokenizer])
def test_what_is_no_processor_is_refused(wrong):
    with pytest.raises(InputError, match=r"^images: .*processor"):
        encode((vision("ViT"), wrong), images=pictures())


@pytest.mark.parametrize("item", [["a", "b"], [[1], [1, 2]], None, [10**400], [np.nan], [1j], [1e38]])
def test_what_is_no_sound_is_refused(item):
    with pytest.raises(InputError, match="audio: entry 0"):
        encode(whisper(), audio=[item])


def test_a_sound_that_the_processor_cuts_is_said():
    with pytest.warns(UserWarning, match=r"1 of 2 sounds .* 16,000 samples"):
        encode(whisper(), audio=[np.zeros(16000), np.zeros(16001)])


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_a_small_file_of_an_enormous_image_is_refused(tmp_path):
    Image.new("1", (12_000, 12_000)).save(tmp_path / "small.png")
    assert (tmp_path / "small.png").stat().st_size < 10**5
    with pytest.raises(InputError, match=r"small\.png"):
        encode((vision("ViT"), processor()), images=[tmp_path / "small.png"])
