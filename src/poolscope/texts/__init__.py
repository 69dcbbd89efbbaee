"""Texts: from a file, a folder, standard input, a hub data set or memory to ids, texts and labels.

| module       | what it knows                                                            |
|--------------|--------------------------------------------------------------------------|
| `records.py` | `Texts` and `ReadReport`: what was read, and what was noticed on the way |
| `tally.py`   | one value becomes one text; what is counted as empty, damaged, repeated  |
| `plain.py`   | lines and folders of plain text                                          |
| `tables.py`  | what a table is; CSV and JSON lines                                      |
| `arrow.py`   | Parquet, Arrow and Feather files; data frames and data sets in memory    |
| `hub.py`     | data sets of the Hugging Face hub                                        |
| `sources.py` | the one door to every table                                              |
| `reading.py` | `read_texts`                                                             |
| `pairs.py`   | `Pairs`, `read_pairs`, `read_index_pairs`                                |
"""

from poolscope.texts.pairs import Pairs, read_index_pairs, read_pairs
from poolscope.texts.reading import read_texts
from poolscope.texts.records import ReadReport, Texts

__all__ = ["Pairs", "ReadReport", "Texts", "read_index_pairs", "read_pairs", "read_texts"]
