"""Vectors that were made elsewhere beside the vectors that each named cause would give.

| module        | what it knows                                                                      |
|---------------|------------------------------------------------------------------------------------|
| `asking.py`   | which texts are sent, what comes back, and in which form                           |
| `causes.py`   | the vectors that each cause would give: prompt, truncation, pooling, …             |
| `rows.py`     | `match_rows`: what each stored vector is                                           |
| `match.py`    | which cause explains vectors best                                                  |
| `check.py`    | `check_runtime`: what a server does                                                |
| `in_audit.py` | the cause "server or index" of an audit                                            |
| `seal.py`     | `seal` and `check`: is a server or an index still what it was?                     |
| `migrate.py`  | `migrate`: two stores or servers before a switch                                   |
"""
