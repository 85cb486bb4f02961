"""`stansub diagnose`: verdict, advice, picture, command line."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clocks import Clock

import stansub
from stansub import CompiledModel, Exact, InputError, cli
from stansub.decision_findings import HeavyTail, TrialDecisionsWrong
from stansub.diagnostics.normality import NormalityTrial, diagnose
from stansub.report.normality_figure import figure

MODELS = Path(__file__).parents[2] / "stan_models"
PLAIN: dict[str, Any] = {"control_variates": 0, "proposal": "adaptive-metropolis"}
QUICK: dict[str, Any] = PLAIN | {"iter_warmup": 200, "pairs": 12, "subsets": 200, "seed": 1}
THOROUGH = QUICK | {"subsets": 300}
OPTIONS = [
    *("--control-variates", "0", "--proposal", "adaptive-metropolis"),
    *("--iter-warmup", "200", "--pairs", "12", "--subsets", "200", "--seed", "1"),
]


def data_of(y: Any) -> dict[str, Any]:
    return {"N": len(y), "y": y, "sigma": float(np.std(y))}


NORMAL = data_of(np.random.default_rng(1).normal(1, 2, 4000))
HEAVY = data_of(np.random.default_rng(2).lognormal(0, 2, 4000))
SPARSE = data_of(np.random.default_rng(3).permutation(np.arange(4000) < 800).astype(float))


@pytest.fixture(scope="session")
def model() -> CompiledModel:
    return stansub.compile_model(MODELS / "normal_mean.stan")


@pytest.fixture(scope="module")
def healthy(model: CompiledModel) -> NormalityTrial:
    return diagnose(model, NORMAL, block_size=10, **QUICK)


@pytest.fixture(scope="module")
def heavy(model: CompiledModel) -> NormalityTrial:
    return diagnose(model, HEAVY, block_size=1, **QUICK)


@pytest.fixture(scope="module")
def sparse(model: CompiledModel) -> NormalityTrial:
    return diagnose(model, SPARSE, block_size=1, **THOROUGH)


def test_healthy_data_are_trusted(healthy: NormalityTrial) -> None:
    assert healthy.trusted
    assert healthy.headline == "The pocock test can be trusted on these data."
    assert healthy.advice == ()
    assert healthy.note == ""
    assert (healthy.n_observations, healthy.n_blocks, healthy.block_size) == (4000, 400, 10)


def test_heavy_tails_are_not_and_no_cheap_way_out_is_claimed(heavy: NormalityTrial) -> None:
    assert not heavy.trusted
    assert "cannot be trusted" in heavy.headline
    tail, decisions = heavy.reasons
    assert isinstance(tail, HeavyTail)
    assert tail.low > 2 * tail.nominal
    assert "|t| is beyond its critical value" in tail.clause
    assert isinstance(decisions, TrialDecisionsWrong)
    assert decisions.low > decisions.promised
    assert "simulated decisions go the wrong way" in decisions.clause
    assert "No larger block" in heavy.advice[0]
    assert "log_lik_range" in heavy.advice[1], "the bound that the program has"
    assert "`test='exact'`" in heavy.advice[-1]


def test_about_the_mode_remainders_are_tried(model: CompiledModel) -> None:
    """The log likelihood is quadratic, and what expansions leave of heavy tails is little."""
    auto = {"control_variates": "auto", "proposal": "auto", "subsets": 100}
    result = diagnose(model, HEAVY, block_size=1, **QUICK | auto)
    assert result.trusted
    assert (result.figures["blocks"], result.n_blocks) == (result.tails["blocks"].min(), 4000)
    assert result.figures["wrong"] < result.figures["promised"]
    assert not diagnose(model, HEAVY, block_size=1, **QUICK | auto | {"control_variates": 0}).trusted


def test_advice_passes_the_trial_itself(model: CompiledModel, sparse: NormalityTrial) -> None:
    assert not sparse.trusted
    sizes, firsts = (
        [int(found[1]) for advice in sparse.advice if (found := re.match(rf"`{option}=(\d+)` passes", advice))]
        for option in ("block_size", "first_look")
    )
    assert sizes
    assert firsts
    assert diagnose(model, SPARSE, block_size=sizes[0], **THOROUGH).trusted
    assert diagnose(model, SPARSE, block_size=1, first_look=firsts[0], **THOROUGH).trusted


def test_frames_hold_what_was_seen(healthy: NormalityTrial) -> None:
    tails, pairs = healthy.tails, healthy.pairs
    assert pairs["phase"].value_counts().to_dict() == {"end": 9, "start": 3}
    assert tails["n_subsets"].tolist() == [3 * 200] * 12 + [9 * 200] * 12
    assert tails[tails["in_use"]]["blocks"].tolist() == [50, 103, 205] * 2
    assert ((tails["low"] <= tails["observed"]) & (tails["observed"] <= tails["high"])).all()
    assert tails["observed"].corr(tails["nominal"]) > 0.95
    ends = tails[(tails["phase"] == "end") & tails["in_use"]]
    assert healthy.figures["observed"] in ends["observed"].to_numpy()
    assert (pairs["kurtosis"].abs() < 1).all()
    assert (pairs["largest"] < 5).all()


def test_one_seed_one_result(model: CompiledModel, healthy: NormalityTrial) -> None:
    again = diagnose(model, NORMAL, block_size=10, **QUICK)
    assert again.figures == healthy.figures
    assert again.tails.equals(healthy.tails)
    assert diagnose(model, NORMAL, block_size=10, **QUICK | {"seed": 2}).figures != healthy.figures


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test": Exact()}, "uses all the data for every decision"),
        ({"epsilon": 0.0}, "uses all the data for every decision"),
        ({"test": "hoeffding"}, "does not assume normal subset means"),
        ({"block_size": 100}, "the first look takes all 40 blocks"),
        ({"pairs": 2}, "pairs=2` must be an integer of at least 8"),
        ({"subsets": 1}, "subsets=1` must"),
        ({"iter_warmup": 20}, "iter_warmup=20` must"),
        ({"inits": "none.json"}, "none.json"),
        ({"first_look": 1}, "at least 2 blocks"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_what_cannot_be_tried_is_refused(model: CompiledModel, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        diagnose(model, NORMAL, **QUICK | {"block_size": 10} | options)


def test_austerity_promises_its_level_at_every_look(model: CompiledModel) -> None:
    result = diagnose(model, NORMAL, test="austerity", epsilon=0.01, block_size=10, **QUICK)
    assert result.trusted
    assert result.figures["promised"] == pytest.approx(0.03), "400 blocks are looked at after 50, 100 and 200"
    assert result.tails[result.tails["in_use"]]["nominal"].to_numpy() == pytest.approx(0.02)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["healthy", "heavy", "sparse"])
@pytest.mark.usefixtures("pictures_drawn")
def test_the_picture_shows_three_panels(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    result = request.getfixturevalue(name)
    picture = figure(result)
    quantiles, tails, differences = picture.axes
    assert len(differences.lines) == result.trials["end"].n_pairs + 1, "a line a pair and the normal one"
    labels = {text.get_text() for text in quantiles.get_legend().get_texts()}
    assert {f"{n:,} blocks" for n in result.trials["end"].blocks} <= labels
    assert tails.get_xscale() == tails.get_yscale() == "log"
    picture.savefig(tmp_path / "picture.png", dpi=50)
    assert (tmp_path / "picture.png").stat().st_size > 5000


class TestCommand:
    @pytest.fixture(autouse=True)
    def place(self, model: CompiledModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        for name, data in (("normal", NORMAL), ("heavy", HEAVY)):
            Path(f"{name}.json").write_text(json.dumps(data | {"y": data["y"].tolist()}))

    @staticmethod
    def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as exit_:
            cli.main(["diagnose", str(MODELS / "normal_mean.stan"), *arguments])
        out, err = capsys.readouterr()
        assert isinstance(exit_.value.code, int)
        return exit_.value.code, out, err

    def test_verdict_table_and_picture(self, capsys: pytest.CaptureFixture[str], clock: Clock) -> None:
        code, out, err = self.run(["normal.json", *OPTIONS, "--block-size", "10"], capsys)
        assert (code, err) == (0, "")
        lines = out.splitlines()
        assert lines[0] == "The pocock test can be trusted on these data."
        assert lines[-1] == "normal_mean_normality.png"
        assert max(map(len, lines)) <= 100
        assert "expected" in lines[-5]
        assert [line.split()[0] for line in lines[-4:-1]] == ["50", "103", "205"]
        assert Path(lines[-1]).is_file()

    def test_a_verdict_is_a_result_and_no_failure(self, capsys: pytest.CaptureFixture[str]) -> None:
        code, out, _ = self.run(
            ["heavy.json", *OPTIONS, "--block-size", "1", "--subsets", "100", "--output", "heavy.pdf"], capsys
        )
        assert code == 0
        assert out.startswith("The pocock test cannot be trusted on these data.\n")
        assert "-> --test exact" in out
        assert Path("heavy.pdf").is_file()

    def test_pictures_are_overwritten_by_force_alone(self, capsys: pytest.CaptureFixture[str]) -> None:
        Path("normal_mean_normality.png").write_text("dear old picture")
        code, _, err = self.run(["normal.json", *OPTIONS], capsys)
        assert code == 2
        assert "--force" in err
        assert Path("normal_mean_normality.png").read_text() == "dear old picture"
        assert self.run(["normal.json", *OPTIONS, "--block-size", "10", "--force"], capsys)[0] == 0

    @pytest.mark.parametrize(
        ("test", "reason"),
        [
            ("exact", "uses all the data for every decision"),
            ("poisson", "does not assume normal subset means"),
            ("bernstein", "does not assume normal subset means"),
        ],
    )
    def test_tests_without_normal_means_are_refused(
        self, capsys: pytest.CaptureFixture[str], test: str, reason: str
    ) -> None:
        code, out, err = self.run(["normal.json", *OPTIONS, "--test", test], capsys)
        assert (code, out) == (2, "")
        assert f"the {test} test {reason}, so" in err
        assert "there is nothing to check; choose --test pocock or --test austerity" in err
        assert err.count("\n") == 1
