"""The C API against formulas worked out by hand, through the stock bridgestan package."""

import json
import threading
from pathlib import Path

import bridgestan
import numpy as np
import pytest

Y = np.array([1.0, 2.5, -0.5, 4.0])
THETA = np.array([0.3, 0.4])


@pytest.fixture(scope="module")
def model(normal_library: Path) -> bridgestan.StanModel:
    return bridgestan.StanModel(normal_library, {"N": len(Y), "y": Y}, warn=False)


def log_density(theta, *, propto=False, jacobian=True):
    mu, log_sigma = theta
    sigma = np.exp(log_sigma)
    lp = -len(Y) * log_sigma - np.sum((Y - mu) ** 2) / (2 * sigma**2) - mu**2 / 8 - sigma
    if not propto:
        lp -= (len(Y) + 1) / 2 * np.log(2 * np.pi) + np.log(2)
    return lp + (log_sigma if jacobian else 0)


def gradient(theta, *, jacobian=True):
    mu, log_sigma = theta
    sigma = np.exp(log_sigma)
    residual = Y - mu
    return np.array(
        [
            residual.sum() / sigma**2 - mu / 4,
            -len(Y) + (residual**2).sum() / sigma**2 - sigma + (1 if jacobian else 0),
        ]
    )


def hessian(theta):
    mu, log_sigma = theta
    sigma = np.exp(log_sigma)
    residual = Y - mu
    cross = -2 * residual.sum() / sigma**2
    return np.array([[-len(Y) / sigma**2 - 0.25, cross], [cross, -2 * (residual**2).sum() / sigma**2 - sigma]])


@pytest.mark.parametrize("propto", [False, True])
@pytest.mark.parametrize("jacobian", [False, True])
def test_log_density_and_gradient(model, propto, jacobian):
    expected = log_density(THETA, propto=propto, jacobian=jacobian)
    assert model.log_density(THETA, propto=propto, jacobian=jacobian) == pytest.approx(expected, rel=1e-14)
    value, slope = model.log_density_gradient(THETA, propto=propto, jacobian=jacobian)
    assert value == pytest.approx(expected, rel=1e-14)
    np.testing.assert_allclose(slope, gradient(THETA, jacobian=jacobian), rtol=1e-13)


@pytest.mark.parametrize("theta", [THETA, np.array([900.0, 0.1]), np.array([-2.0, -3.0])])
def test_hessian(model, theta):
    value, slope, curvature = model.log_density_hessian(theta, propto=False)
    assert value == pytest.approx(log_density(theta), rel=1e-13)
    np.testing.assert_allclose(slope, gradient(theta), rtol=1e-12)
    np.testing.assert_allclose(curvature, hessian(theta), rtol=2e-9, atol=1e-9 * np.abs(hessian(theta)).max())
    assert curvature[0, 1] == curvature[1, 0]


@pytest.mark.parametrize("vector", [[1.0, 0.0], [2.0, -3.0], [1e-8, 1e-8], [1e9, 2e9], [0.0, 0.0]])
def test_hessian_vector_product(model, vector):
    value, product = model.log_density_hessian_vector_product(THETA, np.array(vector))
    assert value == pytest.approx(log_density(THETA, propto=True), rel=1e-14)
    np.testing.assert_allclose(product, hessian(THETA) @ vector, rtol=1e-9)


def test_constrain_and_unconstrain(model):
    mu, sigma = THETA[0], np.exp(THETA[1])
    np.testing.assert_allclose(model.param_constrain(THETA), [mu, sigma])
    np.testing.assert_allclose(model.param_constrain(THETA, include_tp=True), [mu, sigma, sigma**-2])
    np.testing.assert_allclose(model.param_unconstrain(np.array([mu, sigma])), THETA)
    np.testing.assert_allclose(model.param_unconstrain_json({"sigma": sigma, "mu": mu}), THETA)


def test_generated_quantities_draw_from_the_given_rng(model):
    mu, sigma = THETA[0], np.exp(THETA[1])
    rng = model.new_rng(seed=5)
    draws = np.array([model.param_constrain(THETA, include_gq=True, rng=rng) for _ in range(2000)])
    np.testing.assert_allclose(draws[0, :4], [mu, sigma, mu, sigma])
    error = sigma / np.sqrt(len(draws))
    assert abs(draws[:, 4].mean() - mu) < 4 * error
    assert abs(draws[:, 4].std() - sigma) < 4 * error / np.sqrt(2)
    again = model.param_constrain(THETA, include_gq=True, rng=model.new_rng(seed=5))
    np.testing.assert_array_equal(again, draws[0])
    assert model.param_constrain(THETA, include_gq=True, rng=model.new_rng(seed=6))[4] != again[4]


def test_names_and_sizes(model):
    assert model.name() == "normal_model"
    assert model.param_names() == ["mu", "sigma"]
    assert model.param_unc_names() == ["mu", "sigma"]
    everything = ["mu", "sigma", "precision", "both.1", "both.2", "y_rep"]
    assert model.param_names(include_tp=True, include_gq=True) == everything
    assert model.param_names(include_gq=True) == [name for name in everything if name != "precision"]
    assert (model.param_unc_num(), model.param_num(), model.param_num(include_tp=True)) == (2, 2, 3)
    assert model.param_num(include_tp=True, include_gq=True) == 6


def test_model_info_and_version(model, recwarn):
    assert "STAN_THREADS=true" in model.model_info()
    assert "stanc_version" in model.model_info()
    version = ".".join(map(str, model.model_version()))
    assert version == bridgestan.__version__


def test_initial_values(model):
    rng = model.new_rng(seed=1)
    points = np.array([model.param_initialize(rng) for _ in range(500)])
    assert (np.abs(points) < 2).all()
    assert np.abs(points).max() > 1.9
    assert abs(points.mean()) < 4 * (4 / np.sqrt(12)) / np.sqrt(points.size)
    np.testing.assert_array_equal(model.param_initialize(rng, init_radius=0.0), [0, 0])
    given = model.param_initialize(rng, {"sigma": 3.0})
    assert given[1] == pytest.approx(np.log(3))
    assert given[0] != model.param_initialize(rng, {"sigma": 3.0})[0]
    np.testing.assert_allclose(model.param_initialize(rng, {"mu": 1.0, "sigma": 1.0}), [1, 0], atol=1e-15)


@pytest.mark.parametrize(
    ("inits", "message"),
    [
        ({"mu": 2000.0}, "100 tries.*mu is too large"),
        ({"mu": 2000.0, "sigma": 1.0}, "1 try.*mu is too large"),
        ({"sigma": -1.0}, "sigma|lower bound|Lower bound"),
        ({"mu": [1.0, 2.0]}, "mu"),
    ],
)
def test_impossible_initial_values(model, inits, message):
    with pytest.raises(RuntimeError, match=message):
        model.param_initialize(model.new_rng(seed=1), inits)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("{", "JSON"),
        ('{"N": -1, "y": []}', "N is -1"),
        ('{"N": 2}', "y"),
        ('{"N": 2, "y": [1]}', "y"),
        ("", "N"),
    ],
)
def test_wrong_data(normal_library, data, message):
    with pytest.raises(RuntimeError, match=message):
        bridgestan.StanModel(normal_library, data, warn=False)


def test_data_from_a_file(normal_library, tmp_path, model):
    file = tmp_path / "data.json"
    file.write_text(json.dumps({"N": len(Y), "y": Y.tolist()}))
    library = bridgestan.StanModel(normal_library, str(file), warn=False)
    assert library.log_density(THETA) == model.log_density(THETA)


def test_data_file_read_by_the_library(model, tmp_path):
    """The Python package reads the file itself; other languages pass its path through the C API."""
    file = tmp_path / "data.json"
    file.write_text(json.dumps({"N": len(Y), "y": Y.tolist()}))
    pointer = model._construct(str(file).encode(), 1, None)
    assert pointer
    model._destruct(pointer)
    assert not model._construct(str(tmp_path / "missing.json").encode(), 1, None)


def test_rejections_are_errors(model):
    far = np.array([2000.0, 0.0])
    for call in (model.log_density, model.log_density_gradient, model.log_density_hessian):
        with pytest.raises(RuntimeError, match="mu is too large"):
            call(far)
    # A failed evaluation must leave nothing behind on the autodiff tape.
    np.testing.assert_allclose(model.log_density_gradient(THETA)[1], gradient(THETA), rtol=1e-13)


def test_unconstrain_outside_the_support(model):
    with pytest.raises(RuntimeError, match=r"[Ll]ower bound|sigma"):
        model.param_unconstrain(np.array([0.0, -1.0]))


def test_print_goes_to_the_callback(model, capsys):
    model.log_density(np.array([42.0, 0.0]))
    assert capsys.readouterr().out == "mu is forty-two\n"
    model.log_density(THETA)
    assert capsys.readouterr().out == ""


def test_threads_agree_with_one_thread(model):
    """Every thread needs an autodiff tape of its own."""
    points = np.random.default_rng(0).normal(size=(400, 2))
    expected = np.array([gradient(point) for point in points])
    results = np.full((4, *points.shape), np.nan)

    def evaluate(row: int) -> None:
        for i, point in enumerate(points):
            results[row, i] = model.log_density_gradient(point)[1]

    threads = [threading.Thread(target=evaluate, args=(row,)) for row in range(len(results))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        np.testing.assert_allclose(result, expected, rtol=1e-11)
