"""Vector repairs under scikit-learn's own checks of an estimator; what fails is named with its reason."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from sklearn.utils.estimator_checks import (
    check_estimator,
    check_global_output_transform_pandas,
    check_set_output_transform,
    check_set_output_transform_pandas,
    check_set_output_transform_polars,
    check_transformer_get_feature_names_out,
    check_transformer_get_feature_names_out_pandas,
)

from poolscope.errors import InputError
from poolscope.numbers.pooling import Pooling
from poolscope.repairs.vectors import AllButTheTop, EmbedFilter, MeanRemoval, Standardisation, VectorRepair, Whitening

ZERO = "the check has a row of zeros, which has no direction and is refused by name"
OWN_WORDS = "refused, as the check wants, in words of our own"
EXPECTED = {
    "check_estimators_dtypes": ZERO,
    "check_dtype_object": "an entry that is no number is an InputError, which is a ValueError; wanted: TypeError",
    "check_complex_data": OWN_WORDS,
    "check_estimators_empty_data_messages": OWN_WORDS,
    "check_n_features_in_after_fitting": OWN_WORDS,
}
ONE_FEATURE = {"check_fit2d_1feature": "one dimension has no direction to remove besides itself"}


@pytest.mark.parametrize(
    ("repair", "more"),
    [(MeanRemoval(), {}), (MeanRemoval("subtract"), {}), (AllButTheTop(), ONE_FEATURE), (Standardisation(), {}),
     (Whitening(accept_risk=True), {})],
    ids=repr,
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:.*does not inherit from.*BaseEstimator")  # scikit-learn is no dependency
def test_the_checks_of_scikit_learn(repair, more):
    expected = EXPECTED | more
    results = check_estimator(repair, expected_failed_checks=expected, on_skip=None, on_fail=None)
    assert {each["check_name"] for each in results if each["status"] == "failed"} == set()
    assert {each["check_name"] for each in results if each["status"] == "xfail"} == set(expected)
    assert sum(each["status"] == "passed" for each in results) >= 40


def test_a_filter_needs_the_table_of_a_decoder_so_the_checks_cannot_fit_it():
    with pytest.raises(InputError, match=r"EmbedFilter.* dimension 3 "):
        EmbedFilter().fit(np.eye(3))


@pytest.mark.parametrize("base", [VectorRepair, Pooling])
def test_a_base_cannot_be_made(base):
    with pytest.raises(TypeError, match="abstract"):
        base()


def test_names_of_columns_are_those_of_the_fit():
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(9, 4)), columns=list("abcd"))
    repair = MeanRemoval().fit(table)
    assert list(repair.feature_names_in_) == ["a", "b", "c", "d"]
    with pytest.raises(InputError, match=r"column 1 is 'd'; .*fitted with 'a' there"):
        repair.transform(table[list("dcba")])
    with pytest.raises(InputError, match="fitted with 'b'"):
        repair.transform(pl.DataFrame(table.to_numpy(), schema=["a", "x", "c", "d"]))
    np.testing.assert_array_equal(repair.transform(table), repair.transform(table.to_numpy()))
    assert not hasattr(repair.fit(table.to_numpy()), "feature_names_in_")
    with pytest.raises(InputError, match="input_features should have length equal"):
        repair.get_feature_names_out(["a"])
    assert len(repair.get_feature_names_out(["a", "b", "c", "d"])) == 4


def test_a_repair_that_was_fitted_on_a_table_is_saved_without_names(tmp_path):
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(9, 4)), columns=list("abcd"))
    MeanRemoval().fit(table).save(tmp_path / "repair.safetensors")
    loaded = VectorRepair.load(tmp_path / "repair.safetensors")
    np.testing.assert_array_equal(loaded.transform(table), MeanRemoval().fit_transform(table))


def test_the_output_that_is_asked_of_all_is_given():
    plain = np.random.default_rng(0).normal(size=(9, 4))
    with sklearn.config_context(transform_output="pandas"):
        assert isinstance(MeanRemoval().fit_transform(plain), pd.DataFrame)
        assert isinstance(MeanRemoval().set_output(transform="default").fit_transform(plain), np.ndarray)
        check_global_output_transform_pandas("MeanRemoval", MeanRemoval())
    for check in (check_set_output_transform, check_set_output_transform_pandas, check_set_output_transform_polars,
                  check_transformer_get_feature_names_out, check_transformer_get_feature_names_out_pandas):  # fmt: skip
        check("MeanRemoval", MeanRemoval())


def test_numbers_of_python_are_numbers_and_the_rest_is_refused():
    plain = np.random.default_rng(0).normal(size=(9, 4))
    repair = MeanRemoval().fit(plain.astype(object))
    np.testing.assert_array_equal(repair.transform(plain.tolist()), MeanRemoval().fit_transform(plain))
    assert repair.n_features_in_ == 4
    assert not hasattr(MeanRemoval(), "n_features_in_")
    sparse = pytest.importorskip("scipy.sparse")
    for wrong, words in ((sparse.csr_matrix(plain), "sparse"), (np.array([["a"], [{}]], dtype=object), "could not"),
                         (np.array([[1.0], [np.nan]]), "row 2 .*NaN"), (plain * 1j, "complex128")):  # fmt: skip
        with pytest.raises(InputError, match=words):
            MeanRemoval().fit(wrong)
