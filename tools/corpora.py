"""Corpora with queries that Debian packages hold, for measurements beyond the embedded texts.

    python tools/corpora.py [FOLDER] [--packages LANGUAGE … --count 400]

Writes NAME/texts.jsonl (id, text) and NAME/queries.jsonl (query, ids) for each corpus into FOLDER (by default
$POOLSCOPE_CORPORA, else ~/.cache/poolscope/corpora). It calls apt-get, which fetches packages and lists into a
temporary folder and changes nothing on the machine; so it runs on Debian and its kin only.

    perl-faq          question -> answer of the Perl FAQ (package perl-doc)
    debian-faq-en     question -> answer of the Debian FAQ (package debian-faq)
    debian-faq-de     the same in German (package debian-faq-de)
    packages-en       short -> long description of 400 packages (list Translation-en)
    packages-de       the same in German (list Translation-de)
    computing-terms   headword -> entry of 400 terms of a dictionary of computing (package dict-foldoc)

With `--packages` it writes only descriptions of packages, in these languages.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

PACKAGES = ("perl-doc", "debian-faq", "debian-faq-de", "dict-foldoc")
DRAWN = 400  # descriptions of packages, and entries of the dictionary
SHORTEST = 200  # letters of a description or an entry, 80 of an answer
Pair = tuple[str, str]


def corpora_folder() -> Path:
    """Where the corpora are: $POOLSCOPE_CORPORA, or a folder of the cache."""
    return Path(os.environ.get("POOLSCOPE_CORPORA") or Path.home() / ".cache" / "poolscope" / "corpora")


def perl_questions(pods: list[Path]) -> Iterator[Pair]:
    """Each =head2 of the FAQ with what stands below it, without the marks of pod."""
    for pod in pods:
        for section in re.split(r"^=head2 ", pod.read_text(encoding="utf-8"), flags=re.M)[1:]:
            question, _, rest = section.partition("\n")
            answer = re.split(r"^=(?:head1|cut)\b", rest, flags=re.M)[0]
            yield _plain_pod(question), _plain_pod(answer)


def _plain_pod(text: str) -> str:
    text = re.sub(r"X<[^<>]*>", "", text)
    text = re.sub(r"^=\w+.*$", "", text, flags=re.M)
    for _ in range(4):  # marks inside marks
        text = re.sub(r"\b[A-Z]<+\s*(?:([^<>|]*)\|)?([^<>]*?)\s*>+", lambda m: m[1] or m[2], text)
    return " ".join(text.split())


def faq_questions(file: Path) -> Iterator[Pair]:
    """Each numbered heading that asks, with what stands below it, from the text of the Debian FAQ."""
    text = gzip.decompress(file.read_bytes()).decode("utf-8")
    parts = re.split(r"^(\d+\.\d+(?:\.\d+)*)\.?\s+", text, flags=re.M)
    for section in parts[2::2]:
        heading, _, rest = section.partition("\n\n")
        yield " ".join(heading.split()), " ".join(re.sub(r"^Chapter .*|^[-=]{5,}$", "", rest, flags=re.M).split())


def described_packages(text: str) -> Iterator[Pair]:
    """Short and long description of each package of a list of translations."""
    for entry in text.split("\n\n"):
        if match := re.search(r"^Description-\w+: (.+)\n((?: .*\n?)+)", entry, flags=re.M):
            long = " ".join(line.strip() for line in match[2].splitlines() if line.strip() != ".")
            yield match[1].strip(), long


def dictionary_entries(file: Path) -> Iterator[Pair]:
    """Each headword of the dictionary of computing with its entry, without links, fields and the date at the end."""
    text = gzip.decompress(file.read_bytes()).decode("utf-8", errors="replace")
    for entry in re.split(r"\n\n(?=[^\s{][^\n]*\n(?:[^\s{][^\n]*\n)?\n   )", text)[1:]:
        heading, _, rest = entry.partition("\n\n")
        plain = re.sub(r"[{}]|<[\w, ]+>|\(\d{4}-\d\d-\d\d\)\s*$", "", rest)
        yield heading.partition("\n")[0].strip(), " ".join(plain.split())


def drawn(pairs: Iterator[Pair], count: int) -> list[Pair]:
    """So many pairs by the digest of their words: the same whatever their order."""
    return sorted(pairs, key=lambda pair: hashlib.sha256(pair[0].encode()).digest())[:count]


def alone(pairs: Iterator[Pair], shortest: int) -> Iterator[Pair]:
    """Pairs whose text is long enough, and whose query and text occur once."""
    queries, texts = set[str](), set[str]()
    for query, text in pairs:
        if len(text) >= shortest and query and query not in queries and text not in texts:
            queries.add(query)
            texts.add(text)
            yield query, text


def write(folder: Path, pairs: list[Pair]) -> None:
    """The texts, and for each its query."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = [{"id": str(k), "text": text} for k, (_, text) in enumerate(pairs)]
    queries = [{"query": query, "ids": [str(k)]} for k, (query, _) in enumerate(pairs)]
    for name, rows in (("texts", texts), ("queries", queries)):
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    print(f"{folder.name}: {len(pairs)} texts with a query each")


def descriptions(languages: Sequence[str], count: int, place: Path) -> Iterator[tuple[str, list[Pair]]]:
    """So many pairs of each language, from lists that are fetched into a folder."""
    (place / "lists" / "partial").mkdir(parents=True)
    lists = ["-o", f"Dir::State::Lists={place / 'lists'}", "-o", f"Acquire::Languages={','.join(languages)}"]
    subprocess.run(["apt-get", "update", *lists], check=True, stdout=subprocess.DEVNULL)
    for language in languages:
        (translation,) = (place / "lists").glob(f"*_bookworm_main_i18n_Translation-{language}*") or [None]
        command = ["/usr/lib/apt/apt-helper", "cat-file", str(translation)]
        text = subprocess.run(command, check=True, capture_output=True).stdout.decode("utf-8")
        yield language, drawn(alone(described_packages(text), SHORTEST), count)


def main() -> None:
    """Fetch, cut and write the corpora."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=corpora_folder())
    parser.add_argument("--packages", nargs="+", default=[], metavar="LANGUAGE")
    parser.add_argument("--count", type=int, default=DRAWN, help="descriptions of packages a language")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        place, target = Path(name), asked.folder
        for language, pairs in descriptions(asked.packages or ("en", "de"), asked.count, place):
            write(target / f"packages-{language}", pairs)
        if asked.packages:
            return
        subprocess.run(["apt-get", "download", *PACKAGES], cwd=place, check=True, stdout=subprocess.DEVNULL)
        for package in place.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", str(package), str(place / "files")], check=True)
        pods = sorted((place / "files").rglob("perlfaq[1-9].pod"))
        write(target / "perl-faq", list(alone(perl_questions(pods), 80)))
        (dictionary,) = (place / "files").rglob("foldoc.dict.dz")
        write(target / "computing-terms", drawn(alone(dictionary_entries(dictionary), SHORTEST), DRAWN))
        for language, file in (("en", "debian-faq.txt.gz"), ("de", "debian-faq.de.txt.gz")):
            (faq,) = (place / "files").rglob(file)
            write(target / f"debian-faq-{language}", list(alone(faq_questions(faq), 80)))


if __name__ == "__main__":
    main()
