"""The audit: which queries miss, by which cause, and which cure is proven to help.

| file              | what it holds                                                                       |
|-------------------|-------------------------------------------------------------------------------------|
| `run.py`          | `audit`: what was asked for, opened and examined                                    |
| `material.py`     | texts and queries, encoded by a model or a server, or stored in an index            |
| `search.py`       | `Search`: queries, texts, vectors and tokens; everything is a second score on it    |
| `selfmade.py`     | queries that are made from the texts                                                |
| `cause.py`        | `Cause`: symptom, cures, words; one file each in `causes/`                          |
| `cure.py`         | `Cure`: a second score for (query, text); in `cures/` by what it needs              |
| `yardsticks.py`   | keyword search, MaxSim alone, the best order, other models                          |
| `engine.py`       | `examine`: symptoms, trials, levels, ledger, decision                               |
| `rule.py`         | the one rule                                                                        |
| `ledger.py`       | the rank of every relevant text, before and under each cure                         |
| `precision.py`    | what a lower precision of the model changes                                         |
| `misses.py`       | every missed query, opened                                                          |
| `misses_of_run.py` | what any search misses, from its rankings alone                                    |
| `decision.py`     | what to do first                                                                    |
| `threshold.py`    | the score threshold, a setting                                                      |
| `words.py`        | templates of sentences, and the rules of plain words                                |
| `result.py`       | `Audit`, its folder                                                                 |
| `screen.py`, `page.py`, `card.py`, `watch.py` | what is shown                                           |
| `compare.py`      | audits joined by query                                                              |
| `worlds.py`, `calibration.py` | worlds with nothing to find or a planted cause; `calibrate`             |
| `commands.py`     | how an audit was called                                                             |
"""
