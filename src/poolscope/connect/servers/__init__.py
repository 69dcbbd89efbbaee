"""Servers that embed texts, and embedding objects of other libraries, as sources of vectors.

| module        | what it knows                                                                          |
|---------------|----------------------------------------------------------------------------------------|
| `http.py`     | one request, tried again where that can help, with a time limit for the whole answer   |
| `endpoint.py` | `Endpoint`, an embedding object, and which of the two a source is                      |
| `answers.py`  | vectors of many texts; a run that was stopped goes on where it was                     |
| `chat.py`     | one answer of a language model                                                         |
"""
