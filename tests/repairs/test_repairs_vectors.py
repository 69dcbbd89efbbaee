"""Vector repairs against their formulas, inside scikit-learn, on disk, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

from poolscope.errors import InputError, StoreError
from poolscope.repairs.vectors import (
    VECTOR_REPAIRS,
    AllButTheTop,
    EmbedFilter,
    MeanRemoval,
    Standardisation,
    Whitening,
    WhiteningWarning,
    load_repair,
)

REPAIRS = [
    MeanRemoval("project"),
    MeanRemoval("subtract"),
    AllButTheTop(2),
    Standardisation(),
    Whitening(accept_risk=True),
    EmbedFilter(0.25, 0.75).with_table(np.random.default_rng(2).normal(size=(30, 8))),
]


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    """A cone: a common direction, unequal variances, lengths of all sizes."""
    random = np.random.default_rng(0)
    return (random.normal(size=(200, 8)) * np.arange(1, 9) + 6) * random.uniform(0.1, 10, size=(200, 1))


@pytest.fixture(scope="module")
def others() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(5, 8)) + 1


def test_mean_removal_by_projection(vectors, others):
    repair = MeanRemoval().fit(vectors)
    mean = unit(vectors).mean(axis=0)
    direction = mean / np.linalg.norm(mean)
    expected = unit(unit(others) @ (np.eye(8) - np.outer(direction, direction)))
    np.testing.assert_allclose(repair.transform(others), expected, atol=2e-6)  # float32
    np.testing.assert_allclose(repair.transform(others) @ direction, 0, atol=2e-6)
    assert repair.mean_norm == pytest.approx(np.linalg.norm(mean), abs=1e-6)


def test_mean_removal_by_subtraction(vectors, others):
    expected = unit(unit(others) - unit(vectors).mean(axis=0))
    np.testing.assert_allclose(MeanRemoval("subtract").fit(vectors).transform(others), expected, atol=2e-6)


def test_all_but_the_top(vectors, others):
    centred = unit(vectors) - unit(vectors).mean(axis=0)
    _, axes = np.linalg.eigh(centred.T @ centred)
    top = axes[:, -2:]
    expected = (unit(others) - unit(vectors).mean(axis=0)) @ (np.eye(8) - top @ top.T)
    np.testing.assert_allclose(AllButTheTop(2).fit(vectors).transform(others), unit(expected), atol=2e-6)


def test_standardisation(vectors, others):
    sample = unit(vectors)
    expected = unit((unit(others) - sample.mean(axis=0)) / sample.std(axis=0))
    np.testing.assert_allclose(Standardisation().fit(vectors).transform(others), expected, atol=2e-6)


def test_a_dimension_without_variance_is_only_centred():
    sample = np.array([[1.0, 0.0, 2.0], [-1.0, 0.0, 2.0], [2.0, 0.0, 1.0]])
    repair = Standardisation().fit(sample)
    assert repair.scale_[1] == 1
    assert repair.scale_[0] == pytest.approx(unit(sample)[:, 0].std(), abs=1e-7)


def test_whitening_makes_the_covariance_the_identity(vectors):
    repair = Whitening(accept_risk=True).fit(vectors)
    matrix, offset = repair.affine()
    white = unit(vectors) @ matrix + offset
    np.testing.assert_allclose(white.T @ white / len(white), np.eye(8), atol=1e-5)
    assert Whitening(3, accept_risk=True).fit(vectors).transform(vectors).shape == (200, 3)


@pytest.mark.parametrize("method", ["fit", "fit_transform"])
def test_whitening_warns_where_it_is_called(method, vectors):
    with pytest.warns(WhiteningWarning) as caught:
        getattr(Whitening(), method)(vectors)
    assert [warning.filename for warning in caught] == [__file__]


def test_whole_numbers_of_numpy_are_whole(vectors, tmp_path):
    for ours, theirs in (
        (AllButTheTop(2), AllButTheTop(np.int64(2))),
        (Whitening(3, True), Whitening(np.int32(3), True)),
    ):
        np.testing.assert_array_equal(ours.fit_transform(vectors), theirs.fit_transform(vectors))
        theirs.save(tmp_path / "r.safetensors")
        np.testing.assert_array_equal(
            load_repair(tmp_path / "r.safetensors").transform(vectors), ours.transform(vectors)
        )
    for wrong in (True, 2.0, "2"):
        with pytest.raises(InputError, match="k: received"):
            AllButTheTop(wrong).fit(vectors)


def test_tables_come_out_if_asked_for(vectors):
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    from sklearn.base import clone
    from sklearn.pipeline import make_pipeline

    given = pandas.DataFrame(vectors, index=[f"text {k}" for k in range(len(vectors))])
    repair = Whitening(3, accept_risk=True).set_output(transform="pandas")
    plain = Whitening(3, accept_risk=True).fit_transform(vectors)
    found = repair.fit_transform(given)
    assert list(found.columns) == ["whitening0", "whitening1", "whitening2"]
    assert list(found.index) == list(given.index)
    np.testing.assert_array_equal(found.to_numpy(), plain)
    assert isinstance(clone(repair).fit_transform(vectors), pandas.DataFrame)
    piped = make_pipeline(MeanRemoval(), AllButTheTop(1)).set_output(transform="polars").fit_transform(vectors)
    assert isinstance(piped, polars.DataFrame)
    assert isinstance(repair.set_output(transform="default").set_output().transform(vectors), np.ndarray)
    with pytest.raises(InputError, match=r"transform: received 'csv'; .*default, pandas, polars"):
        repair.set_output(transform="csv")


def test_whitening_warns_unless_told_not_to(vectors):
    with pytest.warns(WhiteningWarning, match="mean removal"):
        Whitening().fit(vectors)
    Whitening(accept_risk=True).fit(vectors)


@pytest.mark.parametrize("repair", REPAIRS, ids=repr)
def test_every_repair_is_the_affine_map_that_it_says(repair, vectors, others):
    repair.fit(vectors)
    matrix, offset = repair.affine()
    found = repair.transform(others)
    np.testing.assert_allclose(found, unit(unit(others) @ matrix + offset), atol=3e-6)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
    assert found.dtype == np.float32
    np.testing.assert_allclose(repair.transform(others * 7), found, atol=2e-6)  # lengths do not count


@pytest.mark.parametrize("repair", REPAIRS, ids=repr)
def test_saved_and_loaded(repair, vectors, others, tmp_path):
    repair.fit(vectors).save(tmp_path / "repair.safetensors")
    again = load_repair(tmp_path / "repair.safetensors")
    assert repr(again) == repr(repair)
    np.testing.assert_array_equal(again.transform(others), repair.transform(others))
    assert type(repair).load(tmp_path / "repair.safetensors").label == repair.label


def test_every_repair_is_tested_and_can_be_loaded():
    assert {type(repair) for repair in REPAIRS} == set(VECTOR_REPAIRS.values())


def test_files_that_cannot_be_used(vectors, tmp_path):
    from safetensors.numpy import save_file

    MeanRemoval().fit(vectors).save(tmp_path / "mean.safetensors")
    with pytest.raises(InputError, match=r"MeanRemoval; .*Whitening"):
        Whitening.load(tmp_path / "mean.safetensors")
    with pytest.raises(StoreError, match=r"absent\.safetensors"):
        load_repair(tmp_path / "absent.safetensors")
    (tmp_path / "text.safetensors").write_text("not a tensor")
    with pytest.raises(StoreError, match=r"text\.safetensors: .*safetensors file"):
        load_repair(tmp_path / "text.safetensors")
    save_file({"mean_": np.zeros(3)}, tmp_path / "foreign.safetensors")
    with pytest.raises(StoreError, match=r"foreign\.safetensors: "):
        load_repair(tmp_path / "foreign.safetensors")


def test_inside_scikit_learn(vectors, others):
    from sklearn.base import clone
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline

    fitted = MeanRemoval("subtract").fit(vectors)
    fresh = clone(fitted)
    assert fresh.mode == "subtract"
    assert not hasattr(fresh, "mean_")
    both = make_pipeline(MeanRemoval("subtract"), AllButTheTop(1)).fit(vectors)
    expected = AllButTheTop(1).fit(fitted.transform(vectors)).transform(fitted.transform(others))
    np.testing.assert_allclose(both.transform(others), expected, atol=1e-6)
    labels = vectors[:, 0] > np.median(vectors[:, 0])
    search = GridSearchCV(make_pipeline(AllButTheTop(), LogisticRegression()), {"allbutthetop__k": [1, 2]}, cv=2)
    assert search.fit(vectors, labels).best_params_["allbutthetop__k"] in (1, 2)


def test_parameters_by_name():
    repair = AllButTheTop(3)
    assert repair.get_params() == {"k": 3}
    assert repair.set_params(k=1).k == 1
    with pytest.raises(InputError, match=r"\['mode'\]; allowed: k"):
        repair.set_params(mode="x")


def test_refusals(vectors, others):
    with pytest.raises(InputError, match="mode: received 'centre'; allowed: project, subtract"):
        MeanRemoval("centre").fit(vectors)
    with pytest.raises(InputError, match="k: received 8"):
        AllButTheTop(8).fit(vectors)
    with pytest.raises(InputError, match="here are 5 vectors of 8 dimensions"):
        Whitening().fit(others)
    flat = np.pad(np.random.default_rng(0).normal(size=(20, 2)), [(0, 0), (0, 3)])
    with pytest.raises(InputError, match=r"received 3, .* 2 directions"):
        Whitening(3, accept_risk=True).fit(flat)
    assert Whitening(accept_risk=True).fit(flat).transform(flat).shape == (20, 2)
    with pytest.raises(InputError, match="needs 2 or more"):
        MeanRemoval().fit(vectors[:1])
    with pytest.raises(InputError, match=r"MeanRemoval.* not fitted"):
        MeanRemoval().transform(vectors)
    with pytest.raises(InputError, match="received dimension 4"):
        MeanRemoval().fit(vectors).transform(vectors[:, :4])
    with pytest.raises(InputError, match="2 unit vectors"):
        MeanRemoval().fit([[1.0, 0.0], [-1.0, 0.0]])
    with pytest.raises(InputError, match=r"row 2 .* is (zero|not finite)"):
        MeanRemoval().fit([[1.0, 0.0], [0.0, 0.0]])


def test_a_vector_that_is_removed_whole_is_named():
    repair = MeanRemoval().fit([[1.0, 0.1], [1.0, -0.1]])
    with pytest.raises(InputError, match=r"row 2 \(1 in all\)"):
        repair.transform([[0.0, 1.0], [5.0, 0.0]])
