"""The audit: one model and one corpus, ten questions, ten verdicts.

| module            | what it knows                                                              |
|-------------------|----------------------------------------------------------------------------|
| `question_table.py` | the ten questions in one table: number, key, words, function, page       |
| `thresholds.py`   | every threshold in one place, with its reason                              |
| `basis.py`        | what a level rests on                                                      |
| `commands.py`     | the commands that answers suggest                                          |
| `subject.py`      | what is audited: model, texts, clouds, vectors; each computed once         |
| `trials.py`       | small held-out trials: does a repair help on these texts?                  |
| `vectors.py`      | answers 1, 2 and 9, from the vectors                                       |
| `pooling.py`      | answer 3, from what the model declares; `runtime.py` what a runtime gave   |
| `truncation.py`   | answer 4, from what was cut off                                            |
| `questions/`      | answers 5, 6 and 7, by length and position: thresholds, judge, sentence    |
| `averaging.py`    | answer 8, from the token clouds                                            |
| `decision.py`     | answer 10, from the other nine                                             |
| `run.py`          | `audit`: encode once, ask every question                                   |
| `result.py`       | `Audit` and `Answer`; files                                                |
| `page.py`         | an audit as sections of a page                                             |
| `compare.py`      | several audits of the same corpus; `differences.py` pairs them             |
| `compare_page.py` | a comparison as sections of a page                                         |
"""
