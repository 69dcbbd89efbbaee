"""An audit with the user's own queries: which answers use them, and what they say where the truth is planted."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import poolscope
from audit_data import bag_of_words, in_a_cone, topics, word_vector
from command_line import run
from poolscope.auditing import subject
from poolscope.auditing.pages import standings
from poolscope.auditing.question import Thresholds
from poolscope.auditing.questions import averaging, position
from poolscope.auditing.questions.averaging import _mistake_note
from poolscope.auditing.questions.scores import ALL_RELEVANT
from poolscope.auditing.run import audit
from poolscope.auditing.searches import Mistakes, query_encoder
from poolscope.encoders import as_encoder
from poolscope.encoders.base import resolve_prompt
from poolscope.encoders.capabilities import options_of
from poolscope.errors import InputError
from poolscope.evaluation import Evaluation, Trial
from poolscope.evaluation.scores import compared
from poolscope.verdicts import Verdict
from tiny_models import WORDS, declare, save_model

TEXTS = [" ".join(text.split()[: 12 + k % 13]) for k, text in enumerate(topics(120))]  # of many lengths


def asked(count=60):
    """Two words of its own ask for each of the first texts."""
    return {f"w{k}x0 w{k}x1": [str(k)] for k in range(count)}


@pytest.fixture(scope="module")
def result():
    return audit(bag_of_words, TEXTS, queries=asked())


def test_answers_use_the_queries_and_say_so(result):
    assert result.corpus["queries"]["queries"] == 60
    assert "60 queries" in result.corpus["notes"][0]
    numbers = result.numbers
    assert numbers["relevant_score"] > numbers["wrong_score"] + 0.3
    assert numbers["query_cut_off"] != numbers["cut_off"]
    assert numbers["query_ndcg"] == pytest.approx(np.mean(result.tables["mean_removal"]["before"].to_numpy()))
    assert "split_half" not in numbers
    for key in ("cone", "averaging"):
        assert "of your queries" in result[key].verdict.sentence
    assert any("your 60 queries" in note for note in result["short"].verdict.evidence)
    assert len(result.tables["mean_removal"]) == 60


def test_without_queries_the_answers_say_that_they_were_made_of_the_texts():
    plain = audit(bag_of_words, TEXTS)
    assert plain.corpus["queries"] is None
    assert "self-made queries" in plain["cone"].verdict.sentence
    assert any("Self-made" in note for note in plain["short"].verdict.evidence)
    assert "query_ndcg" not in plain.numbers


def test_the_hit_rates_are_those_of_the_queries(result):
    """Every query has the text of its words first: an own word is in no other text."""
    rows = {row["bin"]: row for row in result.tables["retrieval_by_length"].to_pylist()}
    assert sum(row["queries"] for name, row in rows.items() if "fifth" not in name) == 60
    assert len(result.tables["never_found"]) == result.numbers["never_found"]


def test_a_cone_is_repaired_where_the_queries_win_by_it():
    """The common direction is long in some texts by chance: without it the words decide."""
    queries = {f"w{k}x0 w{k}x1 w{k}x2": [str(k)] for k in range(120)}
    with_cone, without = (audit(model, topics(120), queries=queries) for model in (in_a_cone, bag_of_words))
    assert with_cone["cone"].verdict.level == "repair"
    assert with_cone.numbers["mean_removal_gain"] > 0.05
    assert without["cone"].verdict.level != "repair"


def only_common(texts):
    """A model that is blind to the own words of the first ten texts."""
    blind = {f"w{k}x{n}" for k in range(10) for n in range(4)}
    known = [[word for word in text.split() if word not in blind] or ["c0"] for text in texts]
    return [np.array([word_vector(word) for word in words]) for words in known]


def test_relevant_texts_that_are_never_found_are_listed():
    result = audit(only_common, TEXTS, queries=asked())
    missed = result.tables["never_found"].to_pylist()
    blind = [row for row in missed if int(row["id"]) < 10]
    assert len(blind) >= 6  # ten by chance have one of the first 10 places in 120 now and then
    assert all(row["best_rank"] > 10 and row["query"].startswith(f"w{row['id']}x0") for row in blind)


def test_what_comes_instead_of_a_text_that_is_never_found_is_a_wrong_answer():
    """The words of every query are in text k: in the other chunk of the document that answers it, or in an answer."""
    groups = [f"d{k // 2}" for k in range(120)]
    by_words = {question: int(ids[0]) for question, ids in asked().items()}
    other_chunk = {question: [str(k ^ 1)] for question, k in by_words.items()}
    for documents in (None, groups):
        missed = audit(bag_of_words, TEXTS, queries=other_chunk, groups=documents).tables["never_found"].to_pylist()
        same = [row["instead"] == str(int(row["id"]) ^ 1) for row in missed]
        assert len(missed) > 20
        assert any(same) == (documents is None)  # without documents nobody knows that it is the other chunk
    two = {question: [str(k), str(k + 60)] for question, k in by_words.items()}
    missed = audit(bag_of_words, TEXTS, queries=two).tables["never_found"].to_pylist()
    assert len(missed) > 20
    assert not {row["instead"] for row in missed} & {None}
    assert all(row["instead"] not in two[row["query"]] for row in missed)


def test_without_a_wrong_answer_among_the_first_nothing_comes_instead():
    """Most texts are one document, which answers every query: only the others can be wrong."""
    queries = {f"w{k}x0 w{k}x1": [str((k + 1) % 60)] for k in range(60)}
    groups = ["d"] * 100 + [f"e{k}" for k in range(20)]
    missed = audit(bag_of_words, TEXTS, queries=queries, groups=groups, trial_texts=0).tables["never_found"]
    assert None in set(missed["instead"].to_pylist()) <= {None, *map(str, range(100, 120))}


def test_many_relevant_texts_that_no_query_finds_are_no_ok():
    """The share that matters is set below and above that of the texts that are missed."""
    many, lax = (audit(only_common, TEXTS, queries=asked(), thresholds={"antihub_watch": x}) for x in (0.2, 0.9))
    assert 0.2 * 60 <= many.numbers["never_found"] == lax.numbers["never_found"] < 0.9 * 60
    assert many["hubs"].verdict.at_least("watch")
    assert "of the relevant texts" in many["hubs"].verdict.sentence
    assert "never_found" in many["hubs"].action.step
    # The chart shows the number that the level rests on, not only those that are fine.
    shown = [
        each for each in standings(many.answers, many.thresholds) if each.key == "hubs" and each.place(each.value) >= 1
    ]
    assert [each.value for each in shown] == [many.numbers["missed_share"]]
    assert "of the relevant texts" not in lax["hubs"].verdict.sentence
    assert lax["hubs"].verdict.level == "ok"


def test_a_cut_off_that_loses_every_fifth_relevant_text_is_no_ok():
    result = audit(only_common, TEXTS, queries=asked(36), thresholds={"cut_off_watch": 0.99, "cut_off_repair": 0.995})
    assert 1 - result.numbers["query_recall"] >= 0.2
    assert result["scores"].verdict.level == "watch"
    assert result["scores"].basis in ("lost", "lost by estimate")
    lax = audit(
        only_common,
        TEXTS,
        queries=asked(36),
        thresholds={"cut_off_watch": 0.99, "cut_off_repair": 0.995, "lost_watch": 0.9},
    )
    assert lax["scores"].verdict.level == "ok"


def test_worst_pairs_are_relevant_and_wrong_texts_that_a_query_confuses():
    result = audit(only_common, TEXTS, queries=asked())
    rows = result.tables["worst_pairs"].to_pylist()
    assert len(rows) > 5
    for row in rows:
        assert row["wrong_cosine"] > row["relevant_cosine"]
        assert row["query"].startswith(f"w{row['id_i']}x0")  # the relevant text comes first
    assert result.numbers["mistakes"] >= len(rows)
    assert 0 <= result.numbers["mistakes_mended"] <= 1


def test_mistakes_are_counted_among_all_and_not_among_those_that_were_drawn(monkeypatch):
    every = audit(only_common, TEXTS, queries=asked(), trial_texts=0)
    monkeypatch.setattr(subject, "MOST_ALIKE", 5)
    drawn = audit(only_common, TEXTS, queries=asked(), trial_texts=0)
    queries, told = every["averaging"].verdict.evidence[0].split(". ")[:2]
    count = every.numbers["mistakes"]
    assert drawn.numbers["mistakes"] == count > int(queries.split()[0]) > 5
    assert told.startswith(f"Of {count} such pairs")
    assert drawn["averaging"].verdict.evidence[0].startswith(f"{queries}. Of 5 drawn of {count} such pairs")
    pairs = every["averaging"].verdict.evidence[1].split()[0]
    assert drawn["averaging"].verdict.evidence[1].startswith(f"{pairs} pairs of a relevant and a wrong text")
    assert "(5 of them measured)" in drawn["averaging"].verdict.evidence[1]


def test_documents_keep_their_other_texts_out_of_the_mistakes():
    """All texts of a document answer its queries, as far as anyone knows: they are neither right nor wrong."""
    groups = [f"d{k // 2}" for k in range(120)]
    apart = audit(only_common, TEXTS, queries=asked(), groups=groups)
    for row in apart.tables["worst_pairs"].to_pylist():
        assert int(row["id_i"]) // 2 != int(row["id_j"]) // 2
    assert any(note.startswith("Left out: 60 pairs") for note in apart["scores"].verdict.evidence)


def test_equal_texts_answer_for_each_other():
    """The relevant text repeats an earlier one: what is found there is right."""
    texts = [*TEXTS, TEXTS[0].upper()]
    queries = asked(40) | {"w0x0 w0x1 w0x2": ["120"]}
    result = audit(lambda given: bag_of_words([text.lower() for text in given]), texts, queries=queries)
    assert result.tables["mean_removal"]["before"].to_numpy()[-1] == 1.0


def test_too_few_queries_are_said():
    result = audit(bag_of_words, TEXTS, queries=asked(6))
    assert result["cone"].verdict.level == "unchecked"
    assert "6 of your queries" in result["cone"].verdict.sentence
    assert result["scores"].verdict.interval is None
    assert "6 queries with 714 wrong pairs are too few to say" in result["scores"].verdict.sentence
    assert any("Fewer than 30 queries" in note for note in result["hubs"].verdict.evidence)


def test_ready_clouds_cannot_be_asked():
    clouds = poolscope.encode(bag_of_words, TEXTS[:20])
    with pytest.raises(InputError, match="no model to encode the queries"):
        audit(clouds, queries=asked(5))


def test_wrong_ids_are_refused_before_anything_is_encoded():
    def never(texts):
        raise AssertionError("encoded")

    with pytest.raises(InputError, match="none of the 60 ids"):
        audit(never, TEXTS, queries={query: [f"t{id_}" for id_ in ids] for query, ids in asked().items()})


# -- beside other audits ----------------------------------------------------------------------------------------------


def test_audits_with_the_same_queries_are_paired_and_others_are_not(result):
    same, fewer = audit(in_a_cone, TEXTS, queries=asked()), audit(in_a_cone, TEXTS, queries=asked(59))
    rows = {row.number: row for row in poolscope.compare(result, same).differences}
    assert rows["query_ndcg"].how == "paired over queries"
    assert rows["hub_skewness"].how.startswith("paired")
    assert {"query_cut_off", "query_recall", "query_precision"} <= rows.keys()
    other = poolscope.compare(result, fewer)
    rows = {row.number: row for row in other.differences}
    assert rows["query_ndcg"].interval is None
    assert "different queries" in rows["hub_skewness"].how
    assert "setting queries" in other.facts


def test_what_queries_measure_is_not_subtracted_from_what_others_do(result):
    alone = audit(bag_of_words, TEXTS)
    comparison = poolscope.compare(result, alone)
    asked_for = {"hidden_share", "collapse_rate", "short_share", "position_lost"}
    rows = [row for row in comparison.differences if row.number in asked_for]
    assert rows
    assert all(row.interval is None and "different queries" in row.how for row in rows)
    assert len({row["number_name"] for row in comparison.answers if row["key"] == "averaging"}) == 2


def test_a_number_says_that_queries_measured_it(result):
    assert "by your queries" in result["averaging"].number_name
    assert "by your queries" in result["short"].number_name
    assert "by your queries" not in result["cone"].number_name


@pytest.mark.parametrize(("answers", "by"), [("long", "by your queries"), ("short", "from the start to the end")])
def test_short_answers_leave_the_probe_of_the_position_to_halves_of_long_texts(tmp_path, answers, by):
    """Whoever asked, the number and the note say so."""
    random = np.random.default_rng(0)
    long = [" ".join(random.choice(WORDS, 40)) for _ in range(40)]
    short = [f"{random.choice(WORDS)} {k}" for k in range(40)]
    first = 0 if answers == "long" else 40
    texts = [*long, *short]
    queries = {f"{' '.join(texts[first + k].split()[:8])} {k}": [str(first + k)] for k in range(20)}
    found = audit(str(save_model(tmp_path)), texts, queries=queries)["position"]
    assert found.number_name.endswith(by)
    halves = any("halves of the longest texts instead" in line for line in found.verdict.evidence)
    assert halves == (answers == "short")


def test_a_header_that_costs_answers_is_stripped_on_trial(monkeypatch):
    header, own = " ".join(["acme"] * 30), topics(120)
    queries = {" ".join(text.split()[:5]) + f" {k}": [str(k)] for k, text in enumerate(own)}
    read = []
    encode_again = subject.Subject.encoded
    monkeypatch.setattr(
        subject.Subject, "encoded", lambda self, texts: read.append(list(texts)) or encode_again(self, texts)
    )
    found = audit(bag_of_words, [f"{header} {text}" for text in own], queries=queries, trial_texts=100)
    said = found["cone"].verdict.sentence
    assert re.search(r"Stripping these words before encoding helps \(\+0\.\d+ nDCG@10 on \d+ of your queries\)", said)
    assert found["cone"].action.step.startswith("strip the words that most texts begin with")
    assert any(len(texts) == 100 and set(texts) <= set(own) for texts in read)  # whole texts, without the header


def test_a_header_of_all_texts_is_no_answer(tmp_path, monkeypatch):
    random = np.random.default_rng(0)
    texts = [f"the cat sat on a mat {' '.join(random.choice(WORDS, 30))}" for _ in range(40)]
    queries = {f"{' '.join(text.split()[6:12])} {k}": [str(k)] for k, text in enumerate(texts[:20])}
    asked = []
    probe = position.position_probe
    monkeypatch.setattr(
        position, "position_probe", lambda *given, **how: asked.append(given[1]) or probe(*given, **how)
    )
    audit(str(save_model(tmp_path)), texts, queries=queries, trial_texts=0)
    assert len(asked) == 1
    assert not any(text.startswith("the cat sat on a mat") for text in asked[0].documents.texts)


def test_the_position_is_asked_in_documents_as_long_as_texts_are(tmp_path):
    """Two long texts among forty say nothing of where an answer stands in the others."""
    random = np.random.default_rng(0)
    texts = [" ".join(random.choice(WORDS, 60 if k < 2 else 24)) for k in range(40)]
    model = save_model(tmp_path, max_position_embeddings=128)
    found = audit(str(model), texts)["position"]
    assert int(re.search(r"document of (\d+) tokens", found.verdict.sentence)[1]) < 30


@pytest.mark.parametrize(
    ("gains", "level", "basis", "kind"),
    [
        ([0.1, 0.2] * 60, "repair", "trial", "re-chunk"),
        ([0.05, -0.05, 0, 0] * 100, "watch", "no cure", "keep"),
        (None, "watch", "untried", "re-chunk"),
    ],
)
def test_the_position_is_repaired_only_where_shorter_chunks_help(tmp_path, monkeypatch, gains, level, basis, kind):
    monkeypatch.setattr(position, "_judged", lambda *_: Verdict("repair", basis="interval"))
    trial = Trial("smaller chunks", "it was not tried.")
    if gains is not None:
        scores = [
            Evaluation("task", "nDCG@10", "queries", np.array(rows)[:, None]) for rows in (0 * np.array(gains), gains)
        ]
        trial = compared("smaller chunks", *scores, doing="halving the chunks")
    monkeypatch.setattr(subject, "chunk_trial", lambda _: trial)
    words = [np.random.default_rng(k).choice(WORDS, 12) for k in range(40)]
    texts = [" ".join([*half, *half]) for half in words]  # so that one half finds the other
    found = audit(str(save_model(tmp_path)), texts, trial_texts=0)["position"]
    assert (found.verdict.level, found.basis, found.action.kind) == (level, basis, kind)
    assert trial.sentence[1:] in found.verdict.sentence


def test_saved_audits_keep_what_the_queries_said(result, tmp_path):
    loaded = poolscope.Audit.load(result.save(tmp_path / "audit"))
    assert loaded.numbers["query_recall"] == result.numbers["query_recall"]
    assert loaded.corpus["queries"] == result.corpus["queries"]
    assert loaded.tables["query_scores"].equals(result.tables["query_scores"])
    page = (tmp_path / "audit" / "report.html").read_text(encoding="utf-8")
    assert "Relevant texts that their queries do not find" in page


# -- how queries are encoded ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "prompt", "expected"),
    [
        ({}, None, "ask: "),
        ({"role": "document"}, None, "ask: "),
        ({"prompt": "any: "}, None, "any: "),
        ({"prompt": "any: "}, "mine: ", "mine: "),
    ],
)
def test_queries_have_their_own_prompt(tmp_path, options, prompt, expected):
    folder = save_model(tmp_path / "bert")
    declare(folder, prompts={"query": "ask: ", "document": "tell: "})
    encoder = query_encoder(as_encoder(folder, **options), prompt)
    assert resolve_prompt(encoder.card, options_of(encoder)) == expected


# -- the command line -------------------------------------------------------------------------------------------------


def test_the_command_reads_queries_and_keeps_them_in_what_it_suggests(tmp_path):
    corpus, queries = tmp_path / "corpus.jsonl", tmp_path / "q.csv"
    rows = [{"id": f"t{k}", "text": text} for k, text in enumerate(TEXTS)]
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    lines = [f'"the {WORDS[k % 17]} number {k}",t{k}' for k in range(40)]
    queries.write_text("query,relevant\n" + "\n".join(lines) + '\n"nobody",t999\n', encoding="utf-8")
    output = tmp_path / "out"
    arguments = ("audit", "builtin:wordllama", str(corpus), "--queries", str(queries), "-o", str(output), "--no-page")
    screen = run(*arguments, "--no-cache")
    assert "Asked with 40 queries of q.csv" in " ".join(screen.split())
    assert "1 judgements" in " ".join(screen.split())
    content = json.loads((output / "audit.json").read_text(encoding="utf-8"))
    commands = [a["action"]["command"] for a in content["answers"] if a["action"] and a["action"]["command"]]
    assert content["numbers"]["query_ndcg"] >= 0
    assert all("--queries" in c for c in commands if c.startswith(("poolscope audit", "poolscope tune")))
    assert all("--id-column id" in c for c in commands if c.startswith("poolscope audit"))


def test_a_benchmark_folder_is_all_that_is_needed(tmp_path):
    home = tmp_path / "bench"
    (home / "qrels").mkdir(parents=True)
    corpus = "".join(json.dumps({"_id": f"t{k}", "text": text}) + "\n" for k, text in enumerate(TEXTS))
    (home / "corpus.jsonl").write_text(corpus, encoding="utf-8")
    queries = "".join(json.dumps({"_id": f"q{k}", "text": f"number {k}"}) + "\n" for k in range(12))
    (home / "queries.jsonl").write_text(queries, encoding="utf-8")
    qrels = "query-id\tcorpus-id\tscore\n" + "".join(f"q{k}\tt{k}\t1\n" for k in range(12))
    (home / "qrels" / "test.tsv").write_text(qrels, encoding="utf-8")
    result = audit("builtin:wordllama", queries=str(home), trial_texts=0)
    assert result.corpus["texts"] == 120
    assert result.corpus["queries"]["source"] == "bench:test"
    assert result["decision"].action is not None


@pytest.mark.parametrize(("documents", "tried"), [(True, False), (False, True)])
def test_mistakes_say_what_was_counted_and_name_no_trial_that_was_not_made(documents, tried):
    number = np.zeros(1)
    rows = (np.zeros(1, int), np.zeros(1, int), np.ones(1, int), number, number, number > 0)
    mistakes = Mistakes(*rows, count=1, queries=1, confused=1)
    note = _mistake_note(mistakes, documents=documents, tried=tried)
    assert ("of another document" in note) == documents
    assert ("in the trial" in note) == tried


def test_queries_that_name_a_document_are_answered_by_its_best_chunk():
    """Each query's words are in one of two chunks: with every chunk relevant half of them would be missed."""
    groups = [f"d{k // 2}" for k in range(120)]
    by_document = audit(
        bag_of_words, TEXTS, queries={q: [f"d{int(ids[0]) // 2}"] for q, ids in asked().items()}, groups=groups
    )
    by_chunk = audit(bag_of_words, TEXTS, queries=asked(), groups=groups)
    assert by_document.numbers["query_ndcg"] == pytest.approx(by_chunk.numbers["query_ndcg"], abs=0.02)
    assert by_document.numbers["query_recall"] == pytest.approx(by_chunk.numbers["query_recall"], abs=0.02)
    assert by_document.numbers["never_found"] <= by_chunk.numbers["never_found"]  # another chunk may be found
    assert any("the best one counts" in note for note in by_document.corpus["notes"])


def test_queries_that_every_text_answers_place_no_cut_off():
    answered = {"w0x0 w1x0": [str(k) for k in range(12)]}
    answer = audit(bag_of_words, TEXTS[:12], queries=answered, trial_texts=0)["scores"]
    assert ALL_RELEVANT in answer.verdict.evidence
    assert "query_cut_off" not in answer.numbers


def test_wrong_texts_of_a_document_that_answers_are_not_said_to_be_none():
    for documents, words in ((True, "no wrong text of another document before"), (False, "no wrong text before")):
        verdict = averaging.judge(None, Thresholds(), Trial("t", "not tried."), asked=True, documents=documents)
        assert words in verdict.sentence


@pytest.mark.parametrize(
    ("places", "level", "basis"), [([16, 17, 18, 19], "repair", "trial"), ([0, 4, 8, 11], "watch", "no cure")]
)
def test_what_was_cut_counts_where_queries_ask_for_it(tmp_path, places, level, basis):
    """Of 20 words 12 are read; the own words of a text are cut off, or read together, and chunks of 10 part them."""
    random, texts = np.random.default_rng(0), []
    for k in range(80):
        words = [f"c{n}" for n in random.integers(40, size=20)]
        for n, place in enumerate(places):
            words[place] = f"w{k}x{n}"
        texts.append(" ".join(words))
    vocabulary = sorted({word for text in texts for word in text.split()})
    table = tmp_path / "words.txt"
    rows = (f"{word} {' '.join(map(str, word_vector(word).round(4)))}\n" for word in vocabulary)
    table.write_text("".join(rows), encoding="utf-8")
    queries = {f"w{k}x0 w{k}x1 w{k}x2 w{k}x3": [str(k)] for k in range(80)}
    found = audit(str(table), texts, queries=queries, max_length=12, trial_texts=80)
    verdict = found["truncation"].verdict
    assert found.numbers["share_cut"] == pytest.approx(0.4)
    assert (verdict.level, verdict.basis) == (level, basis)
    assert "of your queries" in verdict.sentence
    assert (found["truncation"].action.kind == "keep") == (basis == "no cure")
    assert (found.numbers["fitting_gain"] > 0.3) == (basis == "trial")
    untried = audit(str(table), texts, max_length=12, trial_texts=0)["truncation"].verdict
    assert (untried.level, untried.basis) == ("repair", "cut")
