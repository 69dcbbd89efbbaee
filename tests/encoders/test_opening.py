"""Foreign models are opened in a confined process first: what is too large there never reaches this one."""

from __future__ import annotations

import json
import os
import signal
import struct
import sys
import threading
import time

import numpy as np
import pytest
import torch
import transformers

from poolscope import files
from poolscope.encoders import as_encoder, opened, opening
from poolscope.errors import InputError, ModelError
from tiny_models import TEXTS, declare, save_model, write

resource = pytest.importorskip("resource")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the memory of a process")

_GROWTH = 200 * 2**10  # kilobytes by which this process may grow while another one opens a model


@pytest.fixture
def folder(tmp_path):
    return declare(save_model(tmp_path / "model"), pooling={"pooling_mode_mean_tokens": True})


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(opened, "user_cache_folder", files.user_cache_folder)


def edited(path, **changes):
    content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    write(path, {**content, **changes})


def refused(path, message, seconds=60):
    """The one line of a refusal, within so many seconds and without memory of this process."""
    begin, memory = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ModelError, match=message) as caught:
        as_encoder(path)
    assert time.perf_counter() - begin < seconds
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < _GROWTH
    assert "\n" not in str(caught.value)


def assert_same_tokens(encoder, folder):
    """The encoder computes what transformers computes by itself."""
    ids = transformers.AutoTokenizer.from_pretrained(folder)(TEXTS[0], return_tensors="pt")
    with torch.inference_mode():
        expected = transformers.AutoModel.from_pretrained(folder)(**ids).last_hidden_state[0].numpy()
    np.testing.assert_allclose(encoder.encode(TEXTS[:1])[-1][0], expected, atol=1e-5)


@pytest.mark.parametrize(
    "changes",
    [
        {"model_type": "albert", "inner_group_num": 10**7, "num_hidden_groups": 1, "embedding_size": 16},
        {
            "model_type": "bart",
            "encoder_layers": 1,
            "decoder_layers": 10**7,
            "d_model": 16,
            "encoder_ffn_dim": 16,
            "decoder_ffn_dim": 16,
            "encoder_attention_heads": 2,
            "decoder_attention_heads": 2,
        },
        {"model_type": "mobilebert", "num_feedforward_networks": 10**7},
        {"inner_group_num": 1, "num_hidden_layers": 10**7, "quantization_config": {"quant_method": "bitsandbytes"}},
    ],
    ids=["albert", "bart", "mobilebert", "packed"],
)
def test_sizes_that_the_weights_cannot_fill_whatever_their_name(folder, changes):
    edited(folder / "config.json", **changes)
    refused(folder, "cannot belong together")


def test_a_template_without_end(folder, monkeypatch):
    monkeypatch.setenv(opening.FACTOR, "0.2")
    loops = "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}"
    edited(folder / "tokenizer_config.json", chat_template=loops)
    way = {"method": "forward", "format": "structured"}
    edited(
        folder / "sentence_bert_config.json",
        modality_config={"text": way, "message": way},
        processing_kwargs={"chat_template": {"add_generation_prompt": True}},
    )
    refused(folder, "of processor time|of memory")


@pytest.mark.parametrize(("file", "size"), [("vocab.txt", 6 * 2**30), ("merges.txt", 2**28), ("spiece.model", 2**28)])
def test_a_vocabulary_of_gigabytes(folder, file, size):
    (folder / file).touch()
    os.truncate(folder / file, size)
    refused(folder, f"{file}: it has {size:,} bytes; allowed are", seconds=5)


def gguf_text(text):
    return struct.pack("<Q", len(text)) + text.encode()


def test_an_array_that_a_file_does_not_hold(tmp_path, monkeypatch):
    pytest.importorskip("gguf")
    monkeypatch.setenv(opening.FACTOR, "0.2")
    kind = gguf_text("general.architecture") + struct.pack("<I", 8) + gguf_text("bert")
    array = gguf_text("x") + struct.pack("<IIQ", 9, 0, 2**33) + bytes(100)
    (tmp_path / "evil.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + kind + array)
    refused(tmp_path / "evil.gguf", "of processor time|of memory|no GGUF file")


def test_arrays_within_arrays(tmp_path):
    pytest.importorskip("gguf")
    arrays = struct.pack("<Q", 1) + b"x" + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 20000
    (tmp_path / "nested.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + arrays)
    refused(tmp_path / "nested.gguf", "no GGUF file")


def test_a_good_folder_is_opened_there_and_loaded_here(folder):
    with opening.opening("transformers", folder, name="m", model_type="bert") as first:
        facts = first.facts()
    encoder = as_encoder(folder)
    assert_same_tokens(encoder, folder)
    assert facts["dimension"] == encoder.card.dimension
    assert facts["max_length"] == encoder.max_length
    assert "places" in first.answer["confined"] or not opening_has_places()
    assert {"as", "cpu", "nofile", "fsize"} <= set(first.answer["confined"])


def opening_has_places():
    import ctypes

    return ctypes.CDLL(None).syscall(444, None, 0, 1) >= 1  # the version of Landlock that the kernel has


def test_a_process_that_is_ended_from_outside(folder):
    opening.stop()
    end_the_server = threading.Event()

    def end():
        while not end_the_server.wait(0.05):
            if opening._server is not None:
                os.kill(opening._server.process.pid, signal.SIGKILL)
                return

    thread = threading.Thread(target=end)
    thread.start()
    try:
        refused(folder, "the process that opened it ended .*SIGKILL")
    finally:
        end_the_server.set()
        thread.join()
    assert_same_tokens(as_encoder(folder), folder)  # the next one has a process of its own


def test_files_that_change_between_the_two_openings(folder):
    def open_and_change():
        with opening.opening("transformers", folder, name="m", model_type="bert") as first:
            first.facts()
            edited(folder / "config.json", num_hidden_layers=1)

    with pytest.raises(ModelError, match=r"m: .*changed"):
        open_and_change()


def test_a_factor_of_the_limits(folder, monkeypatch):
    stamps = opening.stamp(folder)
    usual = opening.limits_for("transformers", stamps)
    monkeypatch.setenv(opening.FACTOR, "10")
    assert opening.limits_for("transformers", stamps).memory == pytest.approx(10 * usual.memory)
    monkeypatch.setenv(opening.FACTOR, "many")
    with pytest.raises(InputError, match=f"{opening.FACTOR}=many"):
        opening.limits_for("transformers", stamps)


@pytest.fixture
def openings(monkeypatch):
    """The openings in the other process that began, each by its name."""
    began, begin = [], opening._begin

    def counted(request, files, key):
        began.append(request["name"])
        return begin(request, files, key)

    monkeypatch.setattr(opening, "_begin", counted)
    return began


def in_a_later_process(path):
    """Load as a process does that remembers nothing by itself."""
    opening._opened.clear()
    return as_encoder(path)


def the_note(tmp_path):
    (path,) = (tmp_path / "cache" / "poolscope" / "opened").iterdir()
    return path


def test_a_folder_that_came_through_is_not_opened_again(folder, openings):
    as_encoder(folder)
    assert_same_tokens(in_a_later_process(folder), folder)
    assert len(openings) == 1


def test_a_refused_folder_is_opened_again(folder, openings):
    edited(folder / "config.json", num_hidden_layers=10**7)
    for _ in range(2):
        with pytest.raises(ModelError, match=r"config\.json"):
            in_a_later_process(folder)
    assert len(openings) == 2


def test_a_changed_content_is_opened_even_where_the_stamps_are_the_same(folder, openings, monkeypatch):
    stamps = opening.stamp(folder)
    monkeypatch.setattr(opening, "stamp", lambda path: stamps)
    in_a_later_process(folder)
    edited(folder / "config.json", layer_norm_eps=1e-6)
    in_a_later_process(folder)
    assert len(openings) == 2


def test_changed_weights_another_installation_and_other_limits_open_a_folder_again(folder, openings, monkeypatch):
    in_a_later_process(folder)
    os.utime(folder / "model.safetensors")
    in_a_later_process(folder)
    assert len(openings) == 2
    monkeypatch.setattr(opened, "_installation", lambda: ["another"])
    in_a_later_process(folder)
    assert len(openings) == 3
    monkeypatch.setenv(opening.FACTOR, "2")
    in_a_later_process(folder)
    assert len(openings) == 4


@pytest.mark.parametrize("change", ["by someone else", "of another folder", "damaged", "link"])
def test_a_note_is_believed_only_as_this_user_wrote_it(folder, openings, tmp_path, change):
    as_encoder(folder)
    place = the_note(tmp_path)
    content = json.loads(place.read_text(encoding="utf-8"))
    if change == "by someone else":
        content["answer"]["facts"]["dimension"] = 7
        write(place, content)
    elif change == "of another folder":
        content["mark"] = opened.mark_of({"opened": "0" * 64, "answer": content["answer"]})
        write(place, content)
    elif change == "damaged":
        place.write_bytes(b"[" * 10**5)
    else:
        place.rename(tmp_path / "note")
        place.symlink_to(tmp_path / "note")
    in_a_later_process(folder)
    assert len(openings) == 2


def test_what_stamps_do_not_show_is_opened_each_time(folder, openings, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (folder / "more").symlink_to(tmp_path / "elsewhere")  # what lies behind it has no stamp
    for _ in range(2):
        in_a_later_process(folder)
    assert len(openings) == 2


def test_a_file_without_end_is_not_read_for_a_note(folder, openings):
    (folder / "notes.md").touch()
    os.truncate(folder / "notes.md", 2**36)
    begin = time.process_time()
    for _ in range(2):
        in_a_later_process(folder)
    assert time.process_time() - begin < 20
    assert len(openings) == 2


def test_a_cache_that_cannot_be_written_remembers_nothing(folder, openings, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    for _ in range(2):
        assert_same_tokens(in_a_later_process(folder), folder)
    assert len(openings) == 2
