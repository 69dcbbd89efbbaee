"""An audit as a whole: its folder, its screen, its page, its card, and the comparison of two."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest

import poolscope
from audit_data import asking, bag_of_words, topics
from poolscope import Audit, audit, compare, fix
from poolscope.auditing.card import card_markdown, card_svg, save_card
from poolscope.auditing.screen import as_text, cause_line
from poolscope.auditing.words import interval_text
from poolscope.errors import InputError, PoolscopeError, StoreError
from poolscope.numbers.intervals import Estimate, Interval
from poolscope.show.verdicts import LEVEL_COLOURS, LEVELS


def noisy(texts):
    """Bags of words that forget most words of a text."""
    return [cloud[::5] if len(cloud) > 3 else cloud for cloud in bag_of_words(texts)]


@pytest.fixture(scope="module")
def texts():
    return topics(90, seed=11)


@pytest.fixture(scope="module")
def found(texts):
    return audit(noisy, texts, queries=asking(texts, words=2))


def test_the_numbers_of_the_search_agree_with_the_evaluation(found, texts):
    task = poolscope.RetrievalTask(
        list(found.query_texts), texts, np.array([(k, int(v)) for k, v in enumerate(asking(texts, words=2).values())])
    )
    score = poolscope.evaluate(poolscope.as_encoder(noisy), task)
    assert found.ndcg.value_or_raise == pytest.approx(score.value, abs=1e-9)
    assert found.queries == 90
    assert found.missed == round((1 - found.found.value_or_raise) * 90)


def test_every_missed_query_can_be_opened(found):
    assert found.missed > 5
    assert len(found.misses) == found.missed
    for miss in found.misses:
        assert miss.rank > 10
        assert miss.score <= miss.needed
        assert len(miss.before) == 3
        assert miss.before[0].score >= miss.before[-1].score
        assert set(miss.ranks) >= {"keywords", "best-order", "maxsim"}


def test_a_text_in_another_language_says_so():
    german = [f"Der Satz {k} ist nicht der von dem Thema und die Zeile {k} ist eine mit Zahl {k}" for k in range(30)]
    asked = "the sentence is one of the subject and this is it"
    texts = [*german, f"{asked} but it is far from what the others are"]
    missed = audit(lambda some: [[[1.0, 0.01 * len(text)]] for text in some], texts, queries={"x": "30"}).misses
    assert {why for other in missed[0].before for why in other.why} >= {"other language"}


def test_the_bar_of_misses_adds_up(found):
    explained = found.ledger.explained(found.gaining)
    assert sum(len(each.queries) for each in explained) + len(found.ledger.unexplained(found.gaining)) == found.missed


def test_a_folder_holds_the_audit_and_nothing_else_is_believed(found, tmp_path):
    found.save(tmp_path / "a")
    loaded = Audit.load(tmp_path / "a")
    assert as_text(loaded, details=True) == as_text(found, details=True)
    assert loaded.to_dict() == found.to_dict()
    assert loaded.search is None
    assert {path.name for path in (tmp_path / "a" / "tables").iterdir()} == {
        f"{name}.parquet" for name in ("causes", "cures", "misses", "ledger")
    }
    table = tmp_path / "a" / "tables" / "misses.parquet"
    table.write_bytes(table.read_bytes()[:-1] + b"x")
    with pytest.raises(StoreError):
        Audit.load(tmp_path / "a")
    (tmp_path / "a" / "audit.json").write_text('{"result": "Other"}', encoding="utf-8")
    with pytest.raises(StoreError):
        Audit.load(tmp_path / "a")
    with pytest.raises(InputError):
        Audit.load(tmp_path)


def _without_digests(content):
    return {name: part for name, part in content.items() if name not in ("files", "checksum")}


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.update(queries=content["queries"] + 1),
        lambda content: content.update(query_texts=content["query_texts"][1:]),
        lambda content: content.update(query_units=[]),
        lambda content: content.update(query_ndcg=[0.5]),
        lambda content: content["ledger"].update(query=[10**12] * len(content["ledger"]["query"])),
        lambda content: content["ledger"].update(rank=[1.0]),
        lambda content: content["ledger"]["symptoms"].update(long=[[]]),
        lambda content: content.update(model=[]),
        lambda content: content.update(model={"name": 5}),
        lambda content: content.update(corpus={}),
        lambda content: content["findings"][0].update(form="no form"),
        lambda content: content["decision"].update(step=5),
    ],
)
def test_an_audit_of_someone_else_that_does_not_fit_itself_is_refused_or_shown(found, tmp_path, change):
    found.save(tmp_path / "a")
    content = _without_digests(json.loads((tmp_path / "a" / "audit.json").read_text("utf-8")))
    change(content)
    (tmp_path / "a" / "audit.json").write_text(json.dumps(content), "utf-8")
    try:
        loaded = Audit.load(tmp_path / "a")
    except StoreError:
        pass
    else:
        assert as_text(loaded, details=True)
        assert compare(loaded, loaded).changes


@pytest.mark.parametrize("called", [[], {"model": "m", "settings": []}, {"model": "m", "settings": {"queries": "q"}}])
def test_a_call_of_someone_else_that_is_none_is_refused_in_one_line(found, tmp_path, called):
    found.save(tmp_path / "a")
    content = _without_digests(json.loads((tmp_path / "a" / "audit.json").read_text("utf-8")))
    content["provenance"]["called"] = called
    (tmp_path / "a" / "audit.json").write_text(json.dumps(content), "utf-8")
    with pytest.raises(PoolscopeError):
        fix(tmp_path / "a", tmp_path / "out", cure="maxsim", trust=True, dry_run=True)


def test_json_has_whole_estimates(found):
    content = json.loads(json.dumps(found.to_dict()))
    assert set(content["ndcg"]) >= {"value", "interval"}
    assert {"low", "high", "level", "method"} <= set(content["ndcg"]["interval"])
    assert {row["cause"] for row in content["findings"]} == {finding.cause for finding in found.findings}


@pytest.mark.parametrize("details", [False, True])
def test_a_screen_has_80_columns_and_no_label_is_cut(found, details):
    lines = as_text(found, details=details).splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in "".join(lines)
    shown = [finding for finding in found.findings if finding.reason != "not looked at"]
    assert all(any(finding.title in line and finding.label in line for line in lines) for finding in shown)


def test_every_title_number_label_and_interval_fits_a_line(found):
    for finding in found.findings:
        for value in (0.0002, 0.9999, -0.0321, 1.0):
            number = Estimate(value, Interval(value - 0.1, value + 0.1, 0.95, "", "", "texts"))
            line = str(cause_line(replace(finding, number=number)))
            assert len(line) <= 80
            assert f"{finding.title} " in line
    for cause in ("long-texts", "short-texts"):
        number = Estimate(0.0321, Interval(0.0123, 0.0456, 0.95, "", "", "texts"))
        line = str(cause_line(replace(found[cause], number=number)))
        assert line.endswith(interval_text(number, found[cause].form))


def test_numbers_are_the_same_on_screen_page_and_in_json(found):
    shown = f"{found.ndcg.value_or_raise:.3f}"
    assert shown in as_text(found)
    assert shown in found.to_html()
    assert round(found.to_dict()["ndcg"]["value"], 3) == float(shown)


def test_queries_about_few_documents_have_no_intervals_and_no_change_that_would_show(texts):
    documents = [str(k % 7) for k in range(len(texts))]
    few = audit(noisy, texts, queries=asking(texts, words=2), groups=documents)
    assert few.unit == "documents"
    assert few.ndcg.interval is None
    assert few.ndcg.no_interval[1:] in as_text(few)
    assert "95%" not in as_text(few).partition("Causes")[0]
    assert {trial.smallest for trial in few.trials} == {1.0}
    assert few.decision.units == 7
    changed = replace(few, query_ndcg=few.query_ndcg * 0.5)
    worse = compare(few, changed, names=["a", "b"])
    assert worse.changes[0].gain.interval is None  # all seven documents lose, which two of 128 flips of signs do
    assert worse.worse() == ["b"]
    assert not compare(changed, few, names=["a", "b"]).worse()
    assert not compare(few, few, names=["a", "b"]).changes[0].beyond_chance
    mixed = replace(few, query_ndcg=np.where(np.array(few.query_units) < 4, 0.5, 1.0) * few.query_ndcg)
    assert compare(few, mixed, names=["a", "b"]).changes[0].smallest == 1
    assert not compare(few, mixed, names=["a", "b"]).worse()


def test_the_page_has_the_interval_of_the_queries_found(found):
    assert interval_text(found.found, "percent") in found.to_html().partition("<table")[0]


def test_a_floor_that_is_not_chance_is_called_what_it_is(found, tmp_path):
    found = audit("builtin:wordllama", topics(60, seed=3))
    assert found["language"].floor != found["hubs"].floor
    page = found.to_html()
    assert f"{found['language'].floor} {found['language'].number.floor:.2f}×" in page


def test_a_symptom_that_most_relevant_texts_have_is_named_in_no_miss():
    texts = [f"{text} {'long ' * (k % 5 > 0) * 30}" for k, text in enumerate(topics(90, seed=11))]
    found = audit(noisy, texts, queries=asking(texts, words=1))
    finding = found["short-texts"]
    assert finding.affected > found.corpus["answers"] / 2
    assert str(finding.affected) in finding.marked
    listed = [line for line in found.to_html().splitlines() if "is at rank" in line]
    assert listed
    assert not any(finding.title.lower() in line for line in listed)


def test_words_of_others_are_no_markup_on_page_and_card():
    evil = "<script>alert(1)</script> \x1b[31m `rm` **x**"
    texts = [f"{evil} {text}" for text in topics(30, seed=2)]
    queries = {f"{evil} {k} nothing here": str(k) for k in range(30)}
    found = audit(bag_of_words, texts, queries=queries)
    page = found.to_html()
    assert found.misses
    assert "<script>" not in page
    assert "\x1b" not in page
    assert "default-src 'none'" in page
    assert not re.search(r"<script|onload=|href=.http", page)
    assert "<script>" not in card_svg(found).svg
    assert not re.search(r"<script|\x1b", found._repr_html_())
    assert "\x1b" not in card_markdown(found)


def test_a_card_is_markdown_or_a_picture(found, tmp_path):
    save_card(found, tmp_path / "c.md")
    save_card(found, tmp_path / "c.svg")
    assert found.sentences()[0] in (tmp_path / "c.md").read_text(encoding="utf-8")
    assert (tmp_path / "c.svg").read_text(encoding="utf-8").startswith("<svg")
    save_card(found, tmp_path / "c.png")
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    save_card(found, tmp_path / "c.json")
    made = json.loads((tmp_path / "c.json").read_text(encoding="utf-8"))
    assert made["message"] == f"{found.queries - found.missed} of {found.queries} found"
    assert (made["schemaVersion"], made["label"]) == (1, "search audit")
    worst = max((each.level for each in found.looked), key=LEVELS.index)
    assert "#" + made["color"] == LEVEL_COLOURS[worst]
    with pytest.raises(InputError):
        save_card(found, tmp_path / "c.pdf")


def test_a_cause_that_is_not_there_is_named(found):
    assert "truncation" in found
    assert found["truncation"].title == "Truncation"
    with pytest.raises(InputError, match="truncation"):
        found["nothing"]


# -- compare ----------------------------------------------------------------------------------------------------------


def test_a_better_search_is_better_beyond_chance_and_the_other_way_worse(found, texts, tmp_path):
    better = audit(bag_of_words, texts, queries=asking(texts, words=2))
    change = compare(found, better, names=("half", "all")).changes[0]
    assert change.gain.value_or_raise == pytest.approx(better.ndcg.value_or_raise - found.ndcg.value_or_raise)
    assert change.gain.interval.low > 0
    assert not change.worse
    assert change.found_after - change.found_before == len(change.rescued) - len(change.broken)
    back = compare(better, found)
    assert back.worse()
    assert back.changes[0].rescued == change.broken
    back.save(tmp_path / "c")
    assert poolscope.verify(tmp_path / "c").is_right


def test_audits_are_joined_by_query_across_other_chunks(found, texts):
    parts = [(f"{k}#{part}", " ".join(text.split()[part::2])) for k, text in enumerate(texts) for part in (0, 1)]
    halves = {"id": [name for name, _ in parts], "text": [text for _, text in parts]}
    queries = {query: [f"{k}#0", f"{k}#1"] for query, k in asking(texts, words=2).items()}
    other = audit(bag_of_words, halves, queries=queries)
    assert compare(found, other).changes[0].queries == 90


def test_audits_without_a_common_query_are_refused(found, texts):
    other = audit(bag_of_words, texts, queries={"another question": "3", "and one more": "4"})
    with pytest.raises(InputError):
        compare(found, other)
    with pytest.raises(InputError):
        compare(found)
