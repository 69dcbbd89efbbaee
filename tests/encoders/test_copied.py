"""The process that opens models first is a copy of this one where that is safe, and a new one elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import pytest

from tiny_models import declare, save_model

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only on Linux a process is copied")

_BEGIN = """
import json, os, signal, sys, threading
from poolscope.encoders import copied, opening, rehearsal

def told_by_a_copy(look):
    def work(requests, answers):
        answers.write(json.dumps(look()).encode() + b"\\n")
        answers.flush()
        requests.readline()

    copy = copied.copy_at(work)
    if copy is None:
        return None
    told = json.loads(copy.stdout.readline())
    copy.stdin.close()
    assert copy.wait() == 0
    return told
"""


def run(script, *arguments, **variables):
    """What a script prints as JSON in a process without the threads of the tests."""
    code = _BEGIN + textwrap.dedent(script)
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_copy_has_no_file_signal_or_secret_of_this_process():
    told = run(
        """
        signal.signal(signal.SIGTERM, lambda *_: None)
        kept = open(sys.argv[1])
        def look():
            rehearsal._take_environment()
            here = "/proc/self/fd/"
            files = [os.readlink(here + name) for name in os.listdir(here) if os.path.exists(here + name)]
            return {
                "files": sorted({file.partition(":")[0] for file in files}),
                "terminates": signal.getsignal(signal.SIGTERM) == signal.SIG_DFL,
                "secrets": [name for name in os.environ if "HIDE" in name],
                "offline": os.environ["HF_HUB_OFFLINE"],
            }
        print(json.dumps(told_by_a_copy(look)))
        """,
        __file__,
        HIDE_API_KEY="canary",
        HF_HUB_OFFLINE="0",
    )
    assert told["files"] == ["/dev/null", "pipe"]
    assert (told["terminates"], told["secrets"], told["offline"]) == (True, [], "1")


@pytest.mark.parametrize(
    ("name", "copies"), [("ctrl-c", True), ("of somebody", False)], ids=["a thread that waits", "any other thread"]
)
def test_a_process_with_other_threads_is_not_copied(name, copies):
    told = run(
        """
        ended = threading.Event()
        threading.Thread(target=ended.wait, name=sys.argv[1]).start()
        print(json.dumps(told_by_a_copy(lambda: True)))
        ended.set()
        """,
        name,
    )
    assert told == (True if copies else None)


def test_threads_that_python_does_not_know_are_noticed():
    told = run(
        """
        import _thread
        held = _thread.allocate_lock()
        held.acquire()
        _thread.start_new_thread(held.acquire, ())
        print(json.dumps([copied.can_be_copied(), told_by_a_copy(lambda: True)]))
        """
    )
    assert told == [True, None]


def test_a_process_with_much_memory_is_not_copied():
    told = run(
        """
        copied._LARGEST = copied._resident() - 1
        print(json.dumps(told_by_a_copy(lambda: True)))
        """
    )
    assert told is None


_TWO_MODELS = """
import resource, time
if sys.argv[2] == "with a thread":
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
from poolscope import as_encoder
assert len(as_encoder(sys.argv[1]).encode(["a text"])[-1]) == 1
copied_for, pid = opening._server.copied_for, opening._server.process.pid
opening._opened.clear()
as_encoder(sys.argv[1])
same = opening._server.process.pid == pid
opening.stop()
spent = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([copied_for, same, (spent.ru_utime + spent.ru_stime) / time.process_time()]))
"""


@pytest.mark.parametrize("how", ["alone", "with a thread"])
def test_a_copy_imports_nothing_and_opens_one_model_after_another(tmp_path, how):
    folder = declare(save_model(tmp_path / "model"), pooling={"pooling_mode_mean_tokens": True})
    (tmp_path / "file").touch()  # in place of a cache, so that no note is kept
    copied_for, same, share = run(_TWO_MODELS, folder, how, XDG_CACHE_HOME=str(tmp_path / "file"))
    assert same
    assert (copied_for, share < 0.3) == (("transformers", True) if how == "alone" else (None, False))
