"""Tables of looks against published formulas, hand calculation and simulation."""

import numpy as np
import pytest
from scipy import stats

from stansub.acceptance.rules import (
    TEST_NAMES,
    Austerity,
    Bernstein,
    BernsteinSerfling,
    Exact,
    Fixed,
    Geometric,
    Hoeffding,
    Pocock,
    make_test,
)
from stansub.acceptance.student import pocock_critical_value
from stansub.errors import InputError

SMALL = Geometric(first=8)


class TestSchedules:
    def test_geometric(self):
        assert Geometric(first=10).looks(100).tolist() == [10, 20, 40, 80, 100]
        assert Geometric(first=1, growth=1.5).looks(10).tolist() == [1, 2, 3, 5, 8, 10]
        assert Geometric(first=100).looks(100).tolist() == [100]
        assert Geometric(first=500).looks(7).tolist() == [7]

    def test_fixed(self):
        assert Fixed(size=30).looks(100).tolist() == [30, 60, 90, 100]
        assert Fixed(size=50).looks(100).tolist() == [50, 100]
        assert Fixed(size=500).looks(7).tolist() == [7]

    def test_nonsense_is_refused(self):
        for make in (
            lambda: Geometric(first=0),
            lambda: Geometric(first=5, growth=1.0),
            lambda: Geometric(first=5, growth=float("nan")),
            lambda: Geometric(first=5, growth=float("inf")),
            lambda: Fixed(size=0),
        ):
            with pytest.raises(InputError):
                make()


class TestFormulas:
    """Each first row worked out by hand for M = 256 and n = 8, the last but one by the formula for n > M / 2 - 1."""

    def test_austerity(self):
        table = Austerity(epsilon=0.05, looks=SMALL).table(256)
        # t quantile 1.894579 (7 degrees of freedom), sqrt(248 / 255) = 0.986179
        assert table.scale[0] == pytest.approx(1.894579 * 0.986179 / np.sqrt(8), rel=1e-5)
        assert table.scale[4] == pytest.approx(stats.t.isf(0.05, 127) * np.sqrt(128 / 255) / np.sqrt(128))
        assert table.n.tolist() == [8, 16, 32, 64, 128, 256]
        assert not table.offset.any()

    def test_hoeffding(self):
        table = Hoeffding(delta=0.01, looks=SMALL).table(256)
        # delta_1 = 0.005 over two sides: log 400 = 5.991465, rho = 249 / 256
        assert table.offset[0] == pytest.approx(np.sqrt(249 / 256 * 5.991465 / 16), rel=1e-6)
        late = Hoeffding(delta=0.01, looks=Geometric(first=192)).table(256)
        assert late.offset[0] == pytest.approx(np.sqrt(0.25 * (1 + 1 / 192) * 5.991465 / 384), rel=1e-6)
        assert not table.scale.any()

    def test_bernstein(self):
        table = Bernstein(delta=0.01, looks=SMALL).table(256)
        # delta_2 = 0.00125: log(3 / 0.00125) = 7.783224
        assert table.offset[1] == pytest.approx(3 * 7.783224 / 16, rel=1e-6)
        assert table.scale[1] == pytest.approx(np.sqrt(2 * 7.783224 / 16 * 15 / 16), rel=1e-6)

    def test_bernstein_serfling(self):
        table = BernsteinSerfling(delta=0.01, looks=SMALL).table(256)
        # log(10 / 0.005) = 7.600902, kappa = 4.454654
        assert table.offset[0] == pytest.approx(4.454654 * 7.600902 / 8, rel=1e-6)
        assert table.scale[0] == pytest.approx(np.sqrt(2 * 249 / 256 * 7.600902 / 8 * 7 / 8), rel=1e-6)

    def test_bounds_spend_no_more_than_delta(self):
        for n_looks in (1, 5, 50):
            looks = Fixed(size=1)
            table = Hoeffding(delta=0.2, looks=looks).table(n_looks + 1)
            n = table.n[:-1]
            rho = np.where(n <= (n_looks + 1) / 2, 1 - (n - 1) / (n_looks + 1), (1 - n / (n_looks + 1)) * (1 + 1 / n))
            spent = 2 * np.exp(-2 * n * table.offset[:-1] ** 2 / rho)
            assert spent.sum() <= 0.2
            assert spent[0] == pytest.approx(0.1)

    @pytest.mark.parametrize("name", TEST_NAMES)
    @pytest.mark.parametrize("n_units", [1, 2, 3, 49, 50, 51, 10**6])
    def test_tables_of_any_size_are_usable(self, name, n_units):
        test = make_test(name)
        table = test.table(n_units)
        assert table.n[-1] == n_units
        assert (np.diff(table.n) > 0).all()
        assert np.isfinite(table.scale).all()
        assert np.isfinite(table.offset).all()
        assert table.scale[-1] == table.offset[-1] == 0
        assert test.needs_range == (name in ("hoeffding", "bernstein", "bernstein-serfling"))
        assert test.name == name

    def test_zero_epsilon_is_exact(self):
        for test in (Austerity(epsilon=0), Pocock(epsilon=0), Exact()):
            assert test.table(1000).n.tolist() == [1000]


class TestPocock:
    def test_published_constants(self):
        # Times are n / (M - n): with a huge population the looks are equally spaced, as in Pocock's own table.
        for n_looks, published in ((2, 2.178), (3, 2.289), (5, 2.413), (10, 2.555)):
            n = (*(1000 * k for k in range(1, n_looks + 1)), 10**12)
            assert pocock_critical_value(0.025, n) == pytest.approx(published, abs=1e-3)

    def test_a_single_look_needs_the_normal_quantile(self):
        assert pocock_critical_value(0.05, (50, 100)) == pytest.approx(stats.norm.isf(0.05))

    def test_two_looks_against_the_bivariate_normal(self):
        critical = pocock_critical_value(0.05, (50, 150, 200))
        rho = np.sqrt((50 / 150) / (150 / 50))
        both = stats.multivariate_normal([0, 0], [[1, rho], [rho, 1]])
        corners = [(1, 1, 1), (1, -1, -1), (-1, 1, -1), (-1, -1, 1)]
        inside = sum(sign * both.cdf([a * critical, b * critical]) for a, b, sign in corners)
        assert 1 - inside == pytest.approx(0.1, abs=1e-4)

    def test_small_samples_get_the_t_quantile_of_the_same_tail(self):
        table = Pocock(epsilon=0.05, looks=SMALL).table(256)
        critical = pocock_critical_value(0.05, tuple(table.n.tolist()))
        quantile = stats.t.isf(stats.norm.sf(critical), 7)
        assert table.scale[0] == pytest.approx(quantile * np.sqrt(248 / 255) / np.sqrt(8))

    def test_is_wider_than_a_single_look_and_narrower_than_bonferroni(self):
        for epsilon in (0.001, 0.01, 0.05, 0.2):
            n = tuple(Geometric(first=50).looks(100_000).tolist())
            single, bonferroni = stats.norm.isf([epsilon, epsilon / (len(n) - 1)])
            assert single < pocock_critical_value(epsilon, n) < bonferroni

    @pytest.mark.parametrize("looks", [Geometric(first=50, growth=1.1), Fixed(size=50)])
    def test_the_critical_value_grows_as_the_budget_shrinks_however_small(self, looks):
        n = tuple(looks.looks(1279).tolist())
        values = [pocock_critical_value(epsilon, n) for epsilon in (0.1, 1e-5, 1e-9, 1e-11, 1e-14, 1e-17, 1e-100)]
        assert np.all(np.diff(values) > 0)

    def test_too_many_looks(self):
        with pytest.raises(InputError, match="geometric"):
            Pocock(looks=Fixed(size=10)).table(10_000)

    @pytest.mark.slow
    def test_many_looks(self):
        assert np.isfinite(Pocock(looks=Fixed(size=10)).table(1500).scale).all()


class TestRefusals:
    @pytest.mark.parametrize("value", [-0.1, 1.0, 1.5, float("nan")])
    def test_levels_out_of_range(self, value):
        for make in (
            lambda: Austerity(epsilon=value),
            lambda: Pocock(epsilon=value),
            lambda: Hoeffding(delta=value),
            lambda: Bernstein(delta=value),
            lambda: BernsteinSerfling(delta=value),
        ):
            with pytest.raises(InputError, match="between 0 and 1"):
                make()

    def test_delta_zero(self):
        with pytest.raises(InputError, match="delta"):
            make_test("bernstein", delta=0.0)

    def test_names_and_settings(self):
        with pytest.raises(InputError, match="austerity, pocock"):
            make_test("t-test")
        with pytest.raises(InputError, match="does not use `delta`"):
            make_test("austerity", delta=0.1)
        with pytest.raises(InputError, match="does not use `epsilon`"):
            make_test("exact", epsilon=0.1)
        assert make_test("pocock", epsilon=0.2, looks=SMALL) == Pocock(epsilon=0.2, looks=SMALL)

    def test_t_tests_need_two_units(self):
        with pytest.raises(InputError, match="at least 2"):
            Austerity(looks=Geometric(first=1)).table(10)
        assert Austerity(looks=Geometric(first=1)).table(1).n.tolist() == [1]

    def test_no_units(self):
        with pytest.raises(InputError, match="no observations"):
            Exact().table(0)
