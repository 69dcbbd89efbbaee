from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

from cloud_data import random_clouds
from poolscope.clouds import TokenClouds
from poolscope.clouds.token_clouds import CloudBuilder, CloudWriter
from poolscope.errors import InputError


def test_writer_appends_record_batches(tmp_path):
    parts = [random_clouds(k, [2, 3], 4, dtype="float32") for k in range(3)]
    with CloudWriter(tmp_path / "c.arrow") as writer:
        for part in parts:
            writer.write(part)
    again = TokenClouds.open(tmp_path / "c.arrow")
    assert [block.start for block in again.blocks()] == [0, 2, 4]
    assert np.array_equal(again[5], parts[2][1])


def test_writer_leaves_no_file_after_an_error(tmp_path):
    def mixed() -> None:
        with CloudWriter(tmp_path / "c.arrow") as writer:
            writer.write(random_clouds(0, [2], 4))
            writer.write(random_clouds(0, [2], 5))

    with pytest.raises(InputError, match="another dimension"):
        mixed()
    with pytest.raises(InputError, match=r"c\.arrow: no clouds"), CloudWriter(tmp_path / "c.arrow"):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.2])
def test_killed_while_writing_leaves_the_old_file(tmp_path, delay):
    path = tmp_path / "c.arrow"
    old = random_clouds(0, [2, 2], 4, dtype="float32")
    old.save(path)
    code = f"""
        import numpy as np
        from poolscope import CloudWriter, TokenClouds
        part = TokenClouds.from_arrays([np.ones((2000, 64), dtype=np.float32)] * 8)
        with CloudWriter({str(path)!r}) as writer:
            print("writing", flush=True)
            while True:
                writer.write(part)
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"writing\n"
        time.sleep(delay)
        os.kill(process.pid, signal.SIGKILL)
    again = TokenClouds.open(path)
    assert np.array_equal(again[1], old[1])
    assert len(again) == 2


def test_builder_collects_tokens_into_texts():
    builder = CloudBuilder(provenance={"model": "m"})
    for vector in np.eye(3):
        builder.add_token(vector)
    builder.end_text(text="three", id="a")
    builder.add_token([1.0, 2.0, 3.0])
    builder.end_text(text="one", id="b", truncated=2)
    clouds = builder.finish()
    assert np.array_equal(clouds[0], np.eye(3))
    assert clouds[1].tolist() == [[1.0, 2.0, 3.0]]
    assert (list(clouds.ids), clouds.truncated.tolist(), clouds.provenance["model"]) == (["a", "b"], [0, 2], "m")


def test_builder_loses_nothing():
    builder = CloudBuilder()
    with pytest.raises(InputError, match="text 0 has"):
        builder.end_text()
    builder.add_token([1.0])
    with pytest.raises(InputError, match=r"1 tokens .*end_text"):
        builder.finish()
    builder.end_text(text="a")
    builder.add_token([2.0])
    builder.end_text()
    with pytest.raises(InputError, match="texts: entry 1"):
        builder.finish()


def test_a_token_of_another_dimension_is_refused_when_it_comes():
    builder = CloudBuilder()
    builder.add_token([1.0, 2.0])
    with pytest.raises(InputError, match=r"token 1: received 3 .* 2;"):
        builder.add_token([1.0, 2.0, 3.0])
    builder.end_text()
    assert builder.finish()[0].tolist() == [[1.0, 2.0]]
