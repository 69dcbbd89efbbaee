"""Texts: from a file, a folder, standard input, a hub data set or memory to ids, texts and labels.

| module       | what it knows                                                                           |
|--------------|-----------------------------------------------------------------------------------------|
| `records.py` | `Texts`, `Pairs`, `ReadReport`: what was read, and what was noticed on the way          |
| `plain.py`   | files as they are read: lines and folders of plain text, bounds for what is packed      |
| `tables.py`  | what a table is: CSV, JSON lines, Parquet, Arrow, Feather, data frames and data sets    |
| `sources.py` | the one door to every table; data sets of the hub; folders of BEIR and mteb             |
| `corpus.py`  | the built-in corpus                                                                     |
| `queries.py` | `read_queries`: queries and the ids of the texts that answer them                       |
| `runs.py`    | `read_run`, `read_qrels`: rankings of any search, and files of TREC                     |
| `reading.py` | `read_texts`, `as_texts`, `read_pairs`, `read_index_pairs`                              |
"""

from poolscope.texts.queries import JudgedQueries as JudgedQueries
from poolscope.texts.queries import Queries as Queries
from poolscope.texts.queries import read_queries as read_queries
from poolscope.texts.reading import as_texts as as_texts
from poolscope.texts.reading import read_index_pairs as read_index_pairs
from poolscope.texts.reading import read_pairs as read_pairs
from poolscope.texts.reading import read_texts as read_texts
from poolscope.texts.records import Pairs as Pairs
from poolscope.texts.records import ReadReport as ReadReport
from poolscope.texts.records import Texts as Texts
