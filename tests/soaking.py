"""Writers that are killed, interrupted or out of room at any moment: the old stands or the new, and the next run ends.

`python tests/soaking.py --seconds 600 --seed 7` goes on for long; `tests/test_replacing.py` runs some of a fixed seed.
The matrix there kills before each change of the disk; here chance chooses the moment, so that files are half written
too, also by the libraries that write them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from audit_data import asking, bag_of_words, topics
from fuzzing import Verdicts
from poolscope import Audit, TokenClouds, audit, chunk_texts, compare, paper
from poolscope.auditing.compare import COMPARISON, Comparison
from poolscope.errors import PoolscopeError
from poolscope.folder import LOCK
from poolscope.repairs.repair_file import Repair
from poolscope.repairs.vectors import VECTOR_REPAIRS
from poolscope.replacing import current_file
from poolscope.stores.store import Store
from store_fakes import CARD, LAYERS, FakeEncoder, contents, corpus, fill

FINISHED, REFUSED, RAISED = 0, 3, 4  # exit codes of a writer
ATTACKS = ("kill", "interrupt", "no room")


@dataclass(frozen=True)
class Writer:
    """`old` fills a folder, `write` replaces what is in it, `read` gives what a reader sees there, to be compared."""

    name: str
    old: Callable[[Path], Any]
    write: Callable[[Path], Any]
    read: Callable[[Path], Any]


def writers() -> Iterator[Writer]:
    """Every kind of output: a store that is begun or replaced, an audit with its page, single files."""
    texts, other = corpus(7, labels=True), FakeEncoder(replace(CARD, revision="r2"))
    yield Writer("store", lambda _: None, lambda folder: fill(folder / "s", texts=texts), lambda _: None)
    yield Writer(
        "replaced store",
        lambda folder: fill(folder / "s", texts=texts),
        lambda folder: fill(folder / "s", encoder=other, texts=corpus(4), overwrite=True),
        lambda folder: [Store.open(folder / "s").clouds(layer).to_table() for layer in LAYERS],
    )
    generator = np.random.default_rng(0)
    small, large = (TokenClouds.from_arrays(list(generator.standard_normal((n, 50, 64)))) for n in (2, 80))
    yield Writer(
        "clouds",
        lambda folder: small.save(folder / "c.arrow"),
        lambda folder: large.save(folder / "c.arrow"),
        lambda folder: TokenClouds.open(folder / "c.arrow").to_table(),
    )
    fitted = [VECTOR_REPAIRS["whitening"](accept_risk=True).fit(generator.standard_normal((300, d))) for d in (4, 96)]
    repairs = [Repair(temperature=1.2, vectors=steps) for steps in fitted]
    yield Writer(
        "repair",
        lambda folder: repairs[0].save(folder / "r.safetensors"),
        lambda folder: repairs[1].save(folder / "r.safetensors"),
        lambda folder: Repair.load(folder / "r.safetensors").vectors.mean_.tolist(),
    )
    comparisons = _compared()
    yield Writer(
        "comparison",
        lambda folder: comparisons[0].save(folder / "c"),
        lambda folder: comparisons[1].save(folder / "c"),
        lambda folder: json.loads(current_file(folder / "c", COMPARISON).read_text(encoding="utf-8")),
    )
    pieces = [chunk_texts("builtin:wordllama", topics(n), tokens=16) for n in (4, 400)]
    yield Writer(
        "chunks",
        lambda folder: pieces[0].save(folder / "c.jsonl"),
        lambda folder: pieces[1].save(folder / "c.jsonl"),
        lambda folder: (folder / "c.jsonl").read_bytes(),
    )
    yield Writer(
        "paper",
        lambda _: None,
        lambda folder: paper("socm", folder / "p", figures=["3"], limit=12, cache=False),
        lambda _: None,
    )
    yield Writer(
        "audit",
        lambda folder: audit(bag_of_words, topics(12)).save(folder),
        lambda folder: _audited().save(folder),
        _audit,
    )


@cache
def _compared() -> list[Comparison]:
    with tempfile.TemporaryDirectory() as place:
        folders = [Path(place, name) for name in ("one", "two")]
        for folder in folders:
            audit(bag_of_words, topics(12), queries=asking(topics(12))).save(folder, page=False)
        return [compare(*folders), compare(*folders[::-1])]


@cache
def _audited() -> Audit:
    return audit(bag_of_words, topics(14, seed=1))


def _audit(folder: Path) -> Any:
    loaded = Audit.load(folder)
    return loaded.corpus, {name: loaded.tables[name] for name in loaded.tables}


def attacked(write: Callable[[], Any], attack: str, moment: float, size: int) -> tuple[int, str]:
    """How a process ends that writes and is attacked after `moment` seconds, or may not write files beyond `size`."""
    receives, sends = os.pipe()
    child = os.fork()
    if child == 0:
        code = RAISED
        try:
            if attack == "no room":
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
            os.write(sends, b"!")
            write()
            code = FINISHED
        except (PoolscopeError, KeyboardInterrupt):
            code = REFUSED
        except BaseException:
            os.write(sends, traceback.format_exc().encode()[-4000:])
        finally:
            os._exit(code)
    os.close(sends)
    os.read(receives, 1)  # the process has begun
    if attack != "no room":
        time.sleep(moment)
        os.kill(child, signal.SIGKILL if attack == "kill" else signal.SIGINT)
    with os.fdopen(receives, encoding="utf-8", errors="replace") as pipe:
        said = pipe.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said


def _kept(folder: Path) -> dict[str, bytes]:
    return {name: data for name, data in contents(folder).items() if Path(name).name != LOCK}


def soak(
    rounds: Callable[[], Iterator[int]],
    of: Iterable[Writer] | None = None,
    say: Callable[[str], None] = print,
) -> Verdicts:
    """Attack every writer; `rounds` gives numbers, and is asked for each writer and attack."""
    verdicts = Verdicts()
    with tempfile.TemporaryDirectory() as place:
        old, new, case = Path(place, "old"), Path(place, "new"), Path(place, "case")
        for writer in writers() if of is None else of:
            old.mkdir()
            writer.old(old)
            shutil.copytree(old, new)
            began = time.perf_counter()
            writer.write(new)
            seconds, whole = time.perf_counter() - began, _kept(new)
            largest = max(len(data) for data in whole.values())
            states = [writer.read(old), writer.read(new)]
            for attack in ATTACKS:
                met: Counter[str] = Counter()
                for number in rounds():
                    chance = random.Random(f"{writer.name} {attack} {number}")
                    shutil.copytree(old, case)
                    moment, size = chance.uniform(0, seconds * 1.2), chance.randrange(largest + 1)
                    code, said = attacked(lambda w=writer: w.write(case), attack, moment, size)
                    met[{FINISHED: "finished", REFUSED: "refused", RAISED: "raised"}.get(code, "killed")] += 1
                    if wrong := said or what_is_wrong(writer, case, states, whole, attack):
                        verdicts.wrong.append(f"{writer.name}, {attack}, round {number}: {wrong}")
                    shutil.rmtree(case)
                verdicts.counts += met
                say(f"{writer.name}, {attack}: {dict(met)}")
            shutil.rmtree(old)
            shutil.rmtree(new)
    return verdicts


def what_is_wrong(writer: Writer, case: Path, states: list[Any], whole: dict[str, bytes], attack: str) -> str:
    """What is not as it should be after an attack: a reader, what was left behind, or the next run."""
    try:
        if writer.read(case) not in states:
            return "a reader sees neither the old nor the new"
        if attack != "kill" and (left := [name for name in _kept(case) if name.endswith(".tmp")]):
            return f"left behind: {left}"
        writer.write(case)
    except PoolscopeError:
        return traceback.format_exc()
    after = _kept(case)
    differing = sorted(name for name in {*after, *whole} if after.get(name) != whole.get(name))
    return f"the next run wrote other bytes: {differing}" if differing else ""


def main() -> None:
    """Attack for as long as was asked for, and fail if something was lost."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    share = chosen.seconds / (len(list(writers())) * len(ATTACKS))

    def rounds() -> Iterator[int]:
        end, number = time.monotonic() + share, chosen.seed * 1_000_000
        while time.monotonic() < end:
            yield number
            number += 1

    verdicts = soak(rounds)
    for wrong in verdicts.wrong:
        print(wrong)
    print(f"{verdicts.counts.total():,} attacks: {dict(verdicts.counts)}; {len(verdicts.wrong)} wrong")
    sys.exit(1 if verdicts.wrong else 0)


if __name__ == "__main__":
    main()
