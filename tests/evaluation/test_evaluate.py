"""Scores, paired differences and tasks against independent computations."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

import poolscope
from planted import blobs
from poolscope.errors import InputError
from poolscope.evaluation import (
    ClassificationTask,
    ClusteringTask,
    Evaluation,
    RetrievalTask,
    SimilarityTask,
    Task,
    compare_scores,
    evaluate,
    query_task,
    read_task,
    split_half,
    split_half_task,
    summary_body_task,
)
from poolscope.evaluation.tasks import halve, shared_texts
from tiny_models import declare, save_model

# -- halves of texts ------------------------------------------------------------------------------------------------


def test_texts_are_cut_between_words_and_nothing_is_lost():
    text = "one two\nthree   four five six seven eight nine"
    queries, documents, relevant = split_half([text, "a b c d e f g h"])
    assert queries == ["one two\nthree   four", "a b c d"]
    assert documents[0] == "five six seven eight nine"
    assert relevant.tolist() == [[0, 0], [1, 1]]


def test_short_and_ambiguous_texts_are_left_out_and_counted():
    texts = ["a b c d e f g h", "a b c d i j k l", "too short", "m n o p q r s t", "u v w x y z 1 2"]
    task = split_half_task(texts)
    assert list(task.queries) == ["m n o p", "u v w x"]
    (note,) = task.notes
    assert re.match("3 of 5 texts .* 8 words", note)
    assert split_half_task(texts[3:]).notes == ()
    with pytest.raises(InputError, match=r"3 texts .* 0 "):
        split_half(texts[:3])


# -- scores and differences -----------------------------------------------------------------------------------------


def test_the_difference_is_paired():
    """Queries of very different difficulty: only the paired interval sees a gain that is the same for all."""
    random = np.random.default_rng(0)
    before = random.uniform(size=60)
    after = before + 0.02 + 0.01 * random.normal(size=60)
    found = compare_scores(before, after)
    assert found.mean == pytest.approx((after - before).mean())
    assert found.proves_gain
    assert not found.proves_loss
    width = found.interval.high - found.interval.low
    alone = evaluation(before).interval()
    assert width < (alone.high - alone.low) / 5
    assert compare_scores(after, before).proves_loss
    assert not compare_scores(before, before + random.normal(size=60)).proves_gain


def test_intervals_cover_the_truth_about_as_often_as_they_say():
    random = np.random.default_rng(1)
    hits = 0
    for _ in range(200):
        found = compare_scores(np.zeros(40), random.normal(0.1, 1, size=40), draws=400).interval
        hits += found.low <= 0.1 <= found.high
    assert 186 <= hits <= 200  # 95 %, or more


def test_null_comparisons_of_few_queries_exclude_zero_no_more_often_than_they_say():
    random = np.random.default_rng(2)
    place = random.random((500, 60))
    skewed = np.where(place < 0.1, 0.5, np.where(place < 0.6, -0.1, 0.0))  # 0 on average
    for differences in (random.normal(size=(500, 30)), skewed):
        intervals = [compare_scores(np.zeros(len(row)), row).interval for row in differences]
        assert np.mean([not end.low <= 0 <= end.high for end in intervals]) <= 0.08


@pytest.mark.parametrize(
    ("units", "changed", "enough"), [(2, 2, False), (29, 20, False), (30, 6, True), (99, 5, False)]
)
def test_few_units_prove_nothing(units, changed, enough):
    after = np.zeros(units)
    after[:changed] = 1
    found = compare_scores(np.zeros(units), after)
    assert (found.count, found.changed) == (units, changed)
    assert (found.interval is None) == (units < 30) == bool(found.change.no_interval)
    assert found.proves_gain is enough
    assert compare_scores(after, np.zeros(units)).proves_loss is enough
    counts = f"too few to prove anything ({units} queries, {changed} of them changed; needed: 30 and 6)"
    assert found.shortage() == (None if enough else counts)


def test_differences_need_the_same_task():
    with pytest.raises(InputError, match=r"'score', 2\).*'score', 3\)"):
        compare_scores([0.5, 0.6], [0.5, 0.6, 0.7])
    with pytest.raises(InputError, match=r"shape \(2,\)"):
        compare_scores([0.5, np.nan], [0.5, 0.6])


def evaluation(scores):
    return Evaluation("t", "m", "queries", np.asarray(scores, dtype=np.float64)[:, None])


def test_few_scores_have_no_interval():
    few, enough = evaluation([1.0] * 3), evaluation([0.0, 1.0] * 5)
    assert few.interval() is None
    assert few.why_no_interval() == few.to_dict()["no_interval"]
    assert "3 queries, 10 " in few.why_no_interval()
    assert enough.interval().low < 0.5 < enough.interval().high
    assert "no_interval" not in enough.to_dict()


def test_queries_that_all_find_their_text_leave_room_for_others_that_do_not():
    for scores in (np.ones(30), np.zeros(30)):
        interval = evaluation(scores).interval()
        assert interval.low <= scores[0] <= interval.high
        assert 0 <= interval.low < 0.1 or 0.85 < interval.low < 1
        assert 0.02 < interval.high - interval.low < 0.15
    beyond = evaluation(np.arange(30.0) - 5).interval()
    assert -5 < beyond.low < 9.5 < beyond.high < 24


def test_intervals_of_few_skewed_scores_hold_their_level():
    """Most score 0, a few all: percentiles of a bootstrap hold the mean in 85 %. And the same turned round."""
    random = np.random.default_rng(3)
    place, others = random.random((300, 20)), random.uniform(0, 0.5, size=(300, 20))
    scores = np.where(place < 0.75, 0.0, np.where(place < 0.8, 1.0, others))
    for table, mean in ((scores, 0.1), (1 - scores, 0.9)):
        found = [evaluation(row).interval(draws=400) for row in table]
        assert np.mean([each.low <= mean <= each.high for each in found]) >= 0.93


def letters(texts):
    return [[text.count(letter) + 0.1 for letter in "abcdefgh"] for text in texts]


@pytest.mark.parametrize("kind", ["split-half", "sts", "classification"])
def test_differences_need_the_same_texts(kind):
    """As many texts, another draw: the pairs would be no pairs."""
    tables = [
        [" ".join(np.random.default_rng([seed, k]).choice(list("abcdefgh"), 9)) for k in range(12)] for seed in (0, 1)
    ]
    make = {
        "split-half": split_half_task,
        "sts": lambda texts: SimilarityTask(texts, texts[::-1], range(12)),
        "classification": lambda texts: ClassificationTask(texts, ["x", "y"] * 6),
    }[kind]
    first, again, other = (evaluate(letters, make(texts)) for texts in (tables[0], list(tables[0]), tables[1]))
    assert compare_scores(first, again).mean == 0
    assert first.to_dict()["digest"] == again.digest != ""
    with pytest.raises(InputError, match="different texts"):
        compare_scores(first, other)
    unknown = Evaluation(first.task, first.metric, first.unit, first.observations, statistic=first.statistic)
    assert compare_scores(unknown, other).count == first.observations.shape[0]


def test_other_judgements_of_the_same_texts_are_another_task():
    texts = ["a b", "b c", "c d"]
    right, wrong = (RetrievalTask(texts, texts, [(k, (k + shift) % 3) for k in range(3)]) for shift in (0, 1))
    with pytest.raises(InputError, match="different texts"):
        compare_scores(evaluate(letters, right), evaluate(letters, wrong))


# -- similarity -----------------------------------------------------------------------------------------------------


def test_similarity_is_spearman_over_pairs():
    from scipy.stats import spearmanr

    random = np.random.default_rng(0)
    first, second = random.normal(size=(2, 30, 5))
    gold = np.round(random.uniform(0, 5, size=30))  # with ties
    cosines = (first * second).sum(axis=1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
    found = SimilarityTask(["a"] * 30, ["b"] * 30, gold).score(first, second)
    assert found.value == pytest.approx(spearmanr(cosines, gold).statistic, abs=1e-6)
    interval = found.interval()
    assert interval.low < found.value < interval.high
    assert interval.answers == "the population of pairs"
    with pytest.raises(InputError, match="Spearman ρ of similarity"):
        found.scores  # noqa: B018


def test_a_better_similarity_is_proved_by_resampling_pairs():
    random = np.random.default_rng(0)
    gold = random.uniform(size=80)
    angle = np.arccos(gold)
    first = np.stack([np.ones(80), np.zeros(80)], axis=1)
    good = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    bad = good + 0.8 * random.normal(size=good.shape)
    task = SimilarityTask(["a"] * 80, ["b"] * 80, gold)
    found = compare_scores(task.score(first, bad), task.score(first, good))
    assert found.proves_gain
    assert found.mean == pytest.approx(1 - task.score(first, bad).value)
    assert compare_scores(task.score(first, good), task.score(first, good)).interval is None


def test_too_few_pairs_have_no_interval():
    task = SimilarityTask(["a"] * 2, ["b"] * 2, np.array([0.0, 1.0]))
    assert task.score(np.eye(2), [[1.0, 0.0], [0.5, 0.5]]).interval() is None
    with pytest.raises(InputError, match="2 scores, 1 "):
        SimilarityTask(["a"] * 2, ["b"] * 2, np.ones(2))
    with pytest.raises(InputError, match=r"2 pairs .* 1\.0000,"):
        task.score(np.eye(2), np.eye(2))


# -- retrieval ------------------------------------------------------------------------------------------------------


def test_retrieval_scores_and_further_measures():
    task = RetrievalTask(["q"] * 2, ["d", "e", "f"], np.array([[0, 0], [1, 2]]), k=2)
    found = task.score([[1.0, 0.0], [1.0, 0.2]], [[1.0, 0.1], [0.9, 0.3], [0.0, 1.0]])
    assert found.metric == "nDCG@2"
    assert found.scores.tolist() == [1.0, 0.0]
    assert found.others["MRR@2"].tolist() == [1.0, 0.0]
    others = {"MRR@2": 0.5, "recall@2": 0.5, "precision@2": 0.25, "MAP": (1 + 1 / 3) / 2, "found@2": 0.5}
    assert found.to_dict()["others"] == pytest.approx(others)
    assert found.to_dict()["tied_queries"] == 0
    assert (found.searched, found.to_dict()["documents"]) == (3, 3)
    with pytest.raises(InputError, match=r"2 queries .* 1 "):
        RetrievalTask(["q"] * 2, ["d"] * 3, np.array([[0, 0]]))


def test_equal_scores_count_by_the_mean_over_their_orders():
    """Of two documents that tie for the first place one is relevant to query 0 and both are to query 1."""
    task = RetrievalTask(["q", "r"], ["d", "e", "f"], [(0, 0), (1, 0), (1, 1)])
    found = task.score([[1.0, 0.0], [1.0, 0.0]], [[1.0, 0.1], [1.0, 0.1], [0.0, 1.0]])
    assert found.scores.tolist() == pytest.approx([(1 + 1 / np.log2(3)) / 2, 1.0])
    assert found.others["MRR@10"].tolist() == [0.75, 1.0]
    assert found.to_dict()["tied_queries"] == 2
    assert poolscope.RetrievalTask is RetrievalTask


@pytest.mark.parametrize("judged", [[0], [0, 3]], ids=["one judged", "both judged"])
@pytest.mark.parametrize("grades", [None, [1.0, 2.0, 1.0]], ids=["plain", "graded"])
def test_merging_copies_of_a_relevant_document_changes_no_score(judged, grades):
    """Document 3 repeats document 0 but for a blank; document 1 is relevant too, the others are wrong."""
    random = np.random.default_rng(0)
    texts = ["an oak", "a beech", "a stone", "an  oak", "a brick", "a wall"]
    vectors = random.normal(size=(6, 3))
    vectors[3] = vectors[0]
    queries = random.normal(size=(20, 3))
    relevant = [(query, document) for query in range(20) for document in [*judged, 1]]
    merged = [(query, document) for query in range(20) for document in (0, 1)]
    values = None if grades is None else dict(zip((0, 1, 3), grades, strict=True))
    given, kept = (
        None if values is None else np.array([values[document] for _, document in judgements])
        for judgements in (relevant, merged)
    )
    words = [f"q{query}" for query in range(20)]
    before = RetrievalTask(words, texts, relevant, grades=given, k=3).score(queries, vectors)
    rest = [0, 1, 2, 4, 5]
    after = RetrievalTask(words, [texts[k] for k in rest], merged, grades=kept, k=3).score(queries, vectors[rest])
    np.testing.assert_allclose(before.scores, after.scores)
    for name, scores in before.others.items():
        np.testing.assert_allclose(scores, after.others[name], err_msg=name)
    assert 0 < before.value < 1


def test_copies_are_judged_as_what_they_repeat():
    task = RetrievalTask(
        ["q", "r"], ["A", "b", "a", "c", "B"], [(0, 0), (1, 1), (1, 3)], grades=np.array([1.0, 2.0, 3.0])
    )
    assert task.relevant.tolist() == [[0, 0], [0, 2], [1, 1], [1, 3], [1, 4]]
    assert task.answers.tolist() == [0, 0, 1, 2, 1]
    assert task.grades.tolist() == [1, 1, 2, 3, 2]
    assert task.take([1]).answers.tolist() == [1, 2, 1]


@pytest.mark.parametrize("relevant", [[(0, 1)], [(0, -1)], [0, 0], [(0.5, 0)], [("a", "b")], []], ids=repr)
def test_judgements_are_checked(relevant):
    assert RetrievalTask(["a"], ["b"], [(0, 0)]).take([0]).relevant.tolist() == [[0, 0]]
    with pytest.raises(InputError, match=r"^relevant: "):
        RetrievalTask(["a"], ["b"], relevant)


def test_gold_scores_are_checked():
    task = SimilarityTask(["a", "b", "c"], ["a", "b", "d"], gold=[1, 2, 3])
    assert task.take([0, 2]).gold.tolist() == [1, 3]
    for wrong in ([1, np.nan, 3], ["x", "y", "z"], [[1], [2], [3]]):
        with pytest.raises(InputError, match=r"similarity: .*gold"):
            SimilarityTask(["a", "b", "c"], ["a", "b", "d"], gold=wrong)
    with pytest.raises(InputError, match="entry 1 is"):
        SimilarityTask(["a", 2], ["a", "b"], gold=[1, 2])


def test_a_part_of_a_retrieval_task_keeps_its_documents_and_the_idle_ones():
    queries, documents = list("abcd"), list("uvwxyz")
    task = RetrievalTask(queries, documents, np.array([[0, 1], [1, 0], [2, 3], [2, 4], [3, 1]]))
    part = task.take(np.array([2, 3]))
    assert list(part.queries) == ["c", "d"]
    pairs = {(part.queries[q], part.documents[d]) for q, d in part.relevant}
    assert pairs == {("c", "x"), ("c", "y"), ("d", "v")}
    assert {"w", "z"} < set(part.documents)  # relevant to nobody
    assert "u" not in part.documents  # relevant to a query of the other half


def test_idle_documents_are_dealt_out_between_the_halves():
    """What one half is fitted on, the other does not rank; a document of queries in both halves is counted."""
    queries, documents = [f"q{k}" for k in range(6)], [f"d{k}" for k in range(17)]
    relevant = np.array([*((k, k) for k in range(6)), *((k, 6) for k in range(6))])  # d6 answers every query
    task = RetrievalTask(queries, documents, relevant)
    first, second = halve(task, seed=1)
    assert task.idle.tolist() == list(range(7, 17))
    assert set(first.documents) & set(second.documents) == {"d6"}
    assert set(first.documents) | set(second.documents) == set(documents)
    assert [len(half.idle) for half in (first, second)] == [5, 5]
    for half in (first, second):
        pairs = {(half.queries[q], half.documents[d]) for q, d in half.relevant}
        assert pairs == {pair for query in half.queries for pair in ((query, query.replace("q", "d")), (query, "d6"))}
    assert shared_texts(first, second) == 1


@pytest.mark.parametrize(
    "task",
    [
        split_half_task([f"{k} b c d e f g h{k}" for k in range(9)]),
        SimilarityTask([f"a{k}" for k in range(9)], [f"b{k}" for k in range(9)], np.arange(9.0)),
        ClassificationTask([f"t{k}" for k in range(12)], ["x", "y", "z"] * 4),
    ],
    ids=lambda task: task.name,
)
def test_halves_are_disjoint_and_complete(task):
    assert isinstance(task, Task)
    first, second = halve(task, seed=3)
    texts = [set(half.sides[0].texts) for half in (first, second)]
    assert not texts[0] & texts[1]
    assert texts[0] | texts[1] <= set(task.sides[0].texts)
    left_out = sum("left out" in note for half in (first, second) for note in half.notes)
    assert left_out or first.units + second.units == task.units
    again = halve(task, seed=3)[0]
    assert list(again.sides[0].texts) == list(first.sides[0].texts)


SEARCH = {f"what is {k}?": [f"id{k}", f"id{k + 1}"] for k in range(12)}


def searched(order, **options):
    """Twelve queries about thirteen of thirty texts that stand, as the queries do, in this order."""
    texts = {"id": [f"id{k}" for k in order], "text": [f"text {k}" for k in order]}
    return query_task(texts, {query: SEARCH[query] for k in order if (query := f"what is {k}?") in SEARCH}, **options)


ORDERED = {
    "split-half": lambda order: split_half_task([f"{k} b c d e f g h{k}" for k in order]),
    "both ways": lambda order: dataclasses.replace(ORDERED["split-half"](order), both_ways=True),
    "queries": searched,
    "sts": lambda order: SimilarityTask([f"a{k}" for k in order], [f"b{k}" for k in order], order.astype(float)),
    "classification": lambda order: ClassificationTask([f"t{k}" for k in order], [str(k % 3) for k in order]),
    "clustering": lambda order: ClusteringTask([f"t{k}" for k in order], [str(k % 3) for k in order]),
}
ORDERS = [np.random.default_rng(seed).permutation(30) for seed in range(2)]


@pytest.mark.parametrize("made", ORDERED.values(), ids=ORDERED)
def test_halves_hang_on_words_and_seed_not_on_places(made):
    usual, moved = (halve(made(order), seed=2) for order in ORDERS)
    for half, other in zip(usual, moved, strict=True):
        assert half.digest == other.digest  # texts, in the same order, with what is known of them
    assert halve(made(ORDERS[0]), seed=3)[0].digest != usual[0].digest


def test_equal_queries_go_by_what_answers_them():
    def asked(order):
        queries, documents = [["same", f"q{k}"][k % 2] for k in order], [f"d{k}" for k in range(30)]
        return RetrievalTask(queries, documents, np.stack([np.arange(30), order], axis=1))

    usual, moved = (halve(asked(order), seed=2) for order in ORDERS)
    assert [half.digest for half in usual] == [half.digest for half in moved]


def test_queries_are_drawn_by_their_words():
    usual, moved = (searched(order, limit=5) for order in ORDERS)
    assert usual.digest == moved.digest
    assert (usual.units, len(usual.idle)) == (5, 5)


def test_texts_that_ask_both_ways_stay_beside_their_other_halves():
    for half in halve(ORDERED["both ways"](ORDERS[0])):
        assert half.relevant.tolist() == [[k, k] for k in range(15)]
        assert [text.split()[0] for text in half.queries] == [text.split("h")[1] for text in half.documents]


@pytest.mark.parametrize("kind", ["classification", "clustering"])
def test_folds_and_first_centres_hang_on_words_not_on_places(kind):
    vectors = np.random.default_rng(0).normal(size=(30, 4))
    usual, moved = (ORDERED[kind](order).score(vectors[order]) for order in ORDERS)
    assert moved.value == pytest.approx(usual.value, abs=1e-12)
    by_text = (each.observations[np.argsort(order)] for each, order in zip((usual, moved), ORDERS, strict=True))
    np.testing.assert_array_equal(*by_text)


def test_halves_need_something_to_halve():
    with pytest.raises(InputError, match="at least 4"):
        halve(split_half_task([f"{k} b c d e f g h{k}" for k in range(3)]))


# -- files and models -----------------------------------------------------------------------------------------------


def test_tasks_from_files(tmp_path):
    (tmp_path / "sts.csv").write_text("left,right,gold\na cat,a dog,3\na cat,a car,0\nx,x,5\n")
    sts = read_task("sts", tmp_path / "sts.csv", columns=("left", "right", "gold"))
    assert list(sts.first) == ["a cat", "a cat", "x"]
    assert sts.gold.tolist() == [3, 0, 5]
    (tmp_path / "pairs.csv").write_text("query,document,rel\nq1,d1,1\nq1,d2,0\nq2,d2,0\nq3,d3,2\n")
    retrieval = read_task("retrieval", tmp_path / "pairs.csv", columns=("query", "document", "rel"))
    assert list(retrieval.queries) == ["q1", "q3"]
    assert list(retrieval.documents) == ["d1", "d2", "d3"]
    assert retrieval.relevant.tolist() == [[0, 0], [1, 2]]
    assert "1 queries " in retrieval.notes[0]
    assert read_task("retrieval", {"query": ["q", "r"], "document": ["d", "d"]}).relevant.tolist() == [[0, 0], [1, 0]]
    table = {"text": ["a", "b", "c", "d"], "label": ["x", "x", "y", "y"]}
    assert read_task("classification", table).labels == ("x", "x", "y", "y")
    assert read_task("clustering", table, limit=4).units == 4


def test_missing_columns_are_named_by_the_option_of_these_commands(tmp_path):
    (tmp_path / "pairs.csv").write_text("query,document\nq,d\n")
    for kind, wanted in (("sts", "sentence1, sentence2, score"), ("classification", "text, label")):
        with pytest.raises(InputError, match=rf"'query', 'document'.* for {wanted}.*--column A,B"):
            read_task(kind, tmp_path / "pairs.csv")
    with pytest.raises(InputError, match=r"'rel'.*query, document, relevance.*--column"):
        read_task("retrieval", tmp_path / "pairs.csv", columns=("query", "document", "rel"))


def test_files_are_refused_by_name():
    with pytest.raises(InputError, match="task: received 'translation'"):
        read_task("translation", {})
    with pytest.raises(InputError, match=": 3, for sentence1, sentence2, score"):
        read_task("sts", {}, columns=("a", "b"))
    with pytest.raises(InputError, match=r": 2, .* query, document .* relevance"):
        read_task("retrieval", {}, columns=("a", "b", "c", "d"))


def test_summaries_find_bodies():
    task = summary_body_task(limit=30)
    assert (task.units, len(task.documents), task.roles) == (30, 30, ("query", "document"))


def test_roles_reach_the_model():
    class Model:
        def encode_query(self, texts):
            return [[1.0, 0.0]] * len(texts)

        def encode_document(self, texts):
            return [[1.0, 0.1]] + [[0.0, 1.0]] * (len(texts) - 1)

    task = RetrievalTask(["q"], ["d", "e"], np.array([[0, 0]]))
    assert evaluate(Model(), task).value == 1
    with pytest.raises(InputError, match=r"\['max_length'\] for Model"):
        evaluate(Model(), task, max_length=4)
    with pytest.raises(InputError, match="received Model"):
        evaluate(Model(), split_half_task([f"{k} b c d e f g h{k}" for k in range(3)]))


def test_ready_clouds_are_evaluated_where_a_task_has_one_list_of_texts():
    from poolscope import TokenClouds, as_encoder
    from poolscope.repairs import Repair

    vectors, labels = blobs()
    texts = [f"text {k}" for k in range(len(vectors))]
    clouds = TokenClouds.from_arrays([vector[None] for vector in vectors], texts=texts)
    labelled = ClassificationTask(texts, labels.astype(str).tolist())
    halves = split_half_task([f"{k} b c d e f g h{k}" for k in range(3)])
    search = RetrievalTask(["q"], ["d", "e"], np.array([[0, 0]]))
    for model in (clouds, as_encoder(clouds), Repair().apply(clouds)):
        assert evaluate(model, labelled).value > 0.5
        for task in (halves, search):
            with pytest.raises(InputError, match=rf"ready clouds .*{re.escape(task.name)}"):
                evaluate(model, task)


def test_whatever_tune_takes_can_be_evaluated(tmp_path):
    from poolscope import as_encoder
    from poolscope.repairs import Repair

    folder = declare(save_model(tmp_path, "Bert"))
    task = split_half_task([f"the {k} dog sat under the {k} tree and ran" for k in ("fast", "slow", "blue", "red")])
    expected = evaluate(Repair().apply(folder), task)
    encoder = as_encoder(folder)
    for model in (folder, str(folder), encoder, Repair().apply(encoder)):
        np.testing.assert_allclose(evaluate(model, task).scores, expected.scores)
    shorter = evaluate(str(folder), task, max_length=4)
    assert shorter.scores.tolist() == evaluate(as_encoder(folder, max_length=4), task).scores.tolist()
    library = pytest.importorskip("sentence_transformers")
    theirs = evaluate(library.SentenceTransformer(str(folder), device="cpu"), task)
    np.testing.assert_allclose(theirs.scores, expected.scores)
    with pytest.raises(InputError, match="no such model"):
        evaluate("no such model", task)


def test_both_ways_is_the_mean_of_two_searches_text_by_text():
    random = np.random.default_rng(0)
    first, second = random.normal(size=(2, 12, 4))
    halves = split_half_task([f"{k} b c d e f g h{k}" for k in range(12)])
    both = dataclasses.replace(halves, both_ways=True)
    there, back = halves.score(first, second), halves.score(second, first)
    found = both.score(first, second)
    np.testing.assert_allclose(found.scores, (there.scores + back.scores) / 2)
    np.testing.assert_allclose(found.others["MRR@10"], (there.others["MRR@10"] + back.others["MRR@10"]) / 2)
    assert found.searched == there.searched == 12
    assert [len(task.ways(0, 1)) for task in (halves, both)] == [1, 2]


def test_queries_that_share_a_relevant_document_are_one_draw_of_the_interval():
    """Twenty texts, each asked for by two queries that fare alike: the interval is that of twenty draws."""
    random = np.random.default_rng(3)
    documents, twice = random.standard_normal((20, 6)), np.repeat(np.arange(20), 2)
    queries = np.repeat(documents + 2.0 * random.standard_normal((20, 6)), 2, axis=0)
    texts = [f"text {k}" for k in range(20)]
    relevant = np.stack([np.arange(40), twice], axis=1)
    pairs = RetrievalTask([f"query {k}" for k in range(40)], texts, relevant).score(queries, documents)
    alone = RetrievalTask(texts, texts, np.stack([np.arange(20)] * 2, axis=1)).score(queries[::2], documents)
    assert (pairs.draws.name, alone.draws.name, len(pairs.draws)) == ("query groups", "queries", 20)
    assert pairs.score.value == pytest.approx(alone.score.value)
    width = [each.score.interval.high - each.score.interval.low for each in (pairs, alone)]
    assert width[0] == pytest.approx(width[1], rel=0.1)
    assert pairs.score.interval.unit == "query groups"


def test_where_a_text_answers_every_query_the_interval_is_of_queries_on_these_texts():
    relevant = [(query, text) for query in range(40) for text in (query, 40)]
    task = RetrievalTask([f"q {k}" for k in range(40)], [f"t {k}" for k in range(41)], relevant)
    random = np.random.default_rng(4)
    score = task.score(random.standard_normal((40, 5)), random.standard_normal((41, 5))).score
    assert score.interval.unit == "queries on these texts"
    assert score.interval.low < score.value < score.interval.high
