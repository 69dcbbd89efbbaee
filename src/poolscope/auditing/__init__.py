"""The audit: one model and one corpus, every question answered with a verdict.

| module            | what it knows                                                                        |
|-------------------|--------------------------------------------------------------------------------------|
| `question.py`     | what a question is, its answer and its thresholds; `QUESTIONS`, the table              |
| `questions/`      | one file a question: words, thresholds, judge, figure, tables, numbers, action         |
| `subject.py`      | what is audited: model, texts, clouds, vectors; each computed once                     |
| `material.py`     | what it is about: texts encoded, clouds, vectors; the plan of a large corpus           |
| `searches.py`     | what is searched, and small held-out trials: does a repair help on these texts?        |
| `commands.py`     | the commands that answers suggest                                                      |
| `run.py`          | `audit`: encode once, ask every question                                               |
| `result.py`       | `Audit`: its folder and its page                                                       |
| `compare.py`      | several audits of the same corpus                                                      |
| `screen.py`       | what an audit is doing while it runs, and its answers as text                          |
| `pages.py`        | its page, that of a comparison, and figures that answers share                         |
| `judges.py`       | judges for what is measured by itself: `length_verdicts`, `check_runtime`              |
"""
