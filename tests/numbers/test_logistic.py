"""Logistic regression against scikit-learn, and predictions of what a fit has not seen."""

from __future__ import annotations

import numpy as np
import pytest

from planted import blobs
from poolscope.errors import InputError
from poolscope.numbers.learning import label_folds, logistic_regression, predict_unseen


@pytest.mark.parametrize(("kinds", "strength"), [(3, 1.0), (2, 0.5)])
def test_the_logistic_regression_is_that_of_scikit_learn(kinds, strength):
    """With two labels scikit-learn has one vector of weights, which is held back twice as much."""
    linear = pytest.importorskip("sklearn.linear_model")
    vectors, labels = blobs()
    vectors, labels = vectors[labels < kinds], labels[labels < kinds]
    theirs = linear.LogisticRegression(C=1.0, max_iter=5000, tol=1e-10).fit(vectors, labels)
    fit = logistic_regression(vectors, labels, strength=strength)
    np.testing.assert_allclose(fit.shares(vectors), theirs.predict_proba(vectors), atol=1e-3)
    assert fit.converged
    assert not logistic_regression(vectors, labels, strength=1e6, most_steps=1).converged


def test_every_text_is_predicted_unseen():
    vectors, labels = blobs()
    assert (predict_unseen(vectors, labels).labels == labels).mean() > 0.8
    noise = 10 * np.random.default_rng(0).normal(size=(100, 90))
    assert (predict_unseen(noise, labels).labels == labels).mean() < 0.45  # seen texts would be learnt by heart
    with pytest.raises(InputError, match="folds: received 1"):
        predict_unseen(vectors, labels, folds=1)


def test_folds_hold_every_label_in_equal_shares():
    labels = np.repeat([0, 1, 2], [50, 30, 3])
    fold = label_folds(labels, 5, seed=3)
    counts = np.array([[((fold == k) & (labels == label)).sum() for k in range(5)] for label in range(3)])
    assert (np.ptp(counts, axis=1) <= 1).all()
    # The label on three texts is missing from the fit of its own folds nowhere, and shares stay shares.
    found = predict_unseen(np.random.default_rng(0).normal(size=(83, 4)), labels)
    np.testing.assert_allclose(found.shares.sum(axis=1), 1)


def test_a_label_that_a_fit_has_not_seen_has_no_share():
    found = predict_unseen(np.array([[-1.0], [-1.5], [1.0], [1.5], [9.0]]), np.array([0, 0, 1, 1, 2]), folds=5)
    assert found.shares[4, 2] == 0
    assert found.labels[4] == 1
