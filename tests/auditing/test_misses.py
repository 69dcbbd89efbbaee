"""A miss, opened: what the tokens of its query find in the text that should come back."""

from __future__ import annotations

import html
import re

import numpy as np
import pytest

from audit_data import asking, bag_of_words, sentences, topics
from poolscope import Audit, audit, token_matches
from poolscope.auditing import misses
from poolscope.evaluation.matches import shown_token
from tiny_models import WORDS, declare, save_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return declare(save_model(tmp_path_factory.mktemp("model"), "Bert"))


@pytest.fixture(scope="module")
def texts():
    return sentences(60, seed=3)


@pytest.fixture(scope="module")
def found(folder, texts):
    random = np.random.default_rng(0)
    queries = {f"{WORDS[k % 17]} {' '.join(random.choice(WORDS[:17], 4))} {WORDS[k // 17]}": str(k) for k in range(60)}
    return audit(str(folder), texts, queries=queries)


def test_the_tokens_of_a_miss_are_those_of_token_matches(found, folder, texts):
    assert found.misses
    for miss in found.misses[:5]:
        pair = token_matches(str(folder), miss.query, texts[int(miss.text_id)])
        assert miss.inside.maxsim == pytest.approx(pair.maxsim, abs=1e-5)
        assert miss.inside.cosine == pytest.approx(pair.cosine, abs=1e-5)
        assert miss.inside.cosine == pytest.approx(miss.score, abs=1e-5)
        counted = [match for match in pair.matches if match.counts]
        assert [match.match for match in miss.inside.matches] == [match.match for match in counted]
        left = sum(match.contribution for match in pair.matches if not match.counts)
        assert miss.inside.rest == pytest.approx(left, abs=1e-5)


def test_the_page_has_a_cell_a_query_token_with_both_cosines(found, tmp_path):
    found.save(tmp_path / "a")
    assert Audit.load(tmp_path / "a").misses == found.misses
    page = found.to_html()
    cells = re.findall(r"<li><span dir=\"auto\"><b>(.*?)</b> → (.*?)</span>(.*?)</li>", page)
    matches = [match for miss in found.misses for match in miss.inside.matches]
    assert [(html.unescape(token), html.unescape(match)) for token, match, _ in cells] == [
        (shown_token(match.token), shown_token(match.match)) for match in matches
    ]
    for (_, _, rest), match in zip(cells, matches, strict=True):
        numbers = [float(number.replace("−", "-")) for number in re.findall(r"<small[^>]*>(.*?)</small>", rest)]
        assert numbers == pytest.approx([match.similarity, match.to_mean, match.contribution], abs=6e-4)


def test_a_long_query_shows_the_tokens_that_lose_most_in_their_order(found, folder, texts, monkeypatch):
    monkeypatch.setattr(misses, "MOST_TOKENS", 2)
    monkeypatch.setattr(misses, "MOST_MISSES", 1)
    queries = dict(zip(found.query_texts, map(str, range(60)), strict=True))
    short = audit(str(folder), texts, queries=queries)
    whole, cut = (each.misses[0].inside for each in (found, short))
    order = sorted(range(len(whole.matches)), key=lambda k: -whole.matches[k].contribution)[:2]
    assert cut.matches == tuple(whole.matches[k] for k in sorted(order))
    assert cut.rest + sum(match.contribution for match in cut.matches) == pytest.approx(whole.maxsim - whole.cosine)
    assert [miss.inside is None for miss in short.misses] == [False] + [True] * (len(short.misses) - 1)


def test_markup_in_tokens_stays_text(found):
    miss = found.misses[0]
    evil = misses.TokenMatch("<script>", True, "</li>&", 0, 0.5, 0.2, 0.5, 0.2)
    object.__setattr__(miss, "inside", misses.Inside(0.5, 0.2, (evil,)))
    page = found.to_html()
    assert "<b>&lt;script&gt;</b> → &lt;/li&gt;&amp;" in page


@pytest.mark.parametrize("pooling", ["cls", None])
def test_nothing_is_said_of_a_mean_that_the_model_does_not_take(tmp_path, texts, pooling):
    """The first token alone, and tokens without names."""
    if pooling is None:
        words = topics(40, seed=1)
        other = audit(lambda rows: [cloud[::6] for cloud in bag_of_words(rows)], words, queries=asking(words, words=6))
    else:
        folder = declare(save_model(tmp_path, "Bert"), pooling={"pooling_mode": pooling})
        other = audit(str(folder), texts, queries={" ".join(texts[k].split()[:2]): str(k) for k in range(60)})
    assert other.misses
    assert all(miss.inside is None for miss in other.misses)
    assert 'class="tokens"' not in other.to_html()
