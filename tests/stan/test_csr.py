"""Products of sparse designs and vectors: written row by row if a row belongs to an observation."""

import pytest
from texts import canonical

from stansub.stan.parts import divide
from stansub.stan.passes.csr import with_dense_rows
from stansub.stan.syntax import Program

CODE = """
data {{
  int N; int q; int nz; vector[N] y; vector[nz] w; array[nz] int v; array[N + 1] int u; array[N] int<lower=1> row;
}}
parameters {{ vector[q] z; real<lower=0> tau; vector[nz] weight; }}
model {{ tau ~ exponential(1); {model} }}
"""


def read(model: str) -> Program:
    return canonical(CODE.format(model=model))


def test_a_design_of_data_is_written_by_row() -> None:
    product = "csr_matrix_times_vector(N, q, w, v, u, {})"
    program = with_dense_rows(read(f"y ~ normal({product.format('z')} + {product.format('tau * z')}, 1);"))
    assert isinstance(program, Program)
    written = " ".join(program.text(program.model.inside).split())
    for number, factor in ((1, "z"), (2, "stansub_factor_1")):
        term = f"dot_product(stansub_entries_1[stansub_row_1], {factor}[stansub_columns_1[stansub_row_1]])"
        assert f"for (stansub_row_1 in 1 : N) {{ stansub_product_{number}[stansub_row_1] = {term}; }}" in written
    assert written.endswith("y ~ normal(stansub_product_1 + stansub_product_2, 1);")
    parts = divide(program)
    assert parts is not None
    assert {one.name for one in parts.computed} == {"stansub_width_1", "stansub_entries_1", "stansub_columns_1"}


@pytest.mark.parametrize(
    "model",
    [
        pytest.param("y ~ normal(csr_matrix_times_vector(N, q, weight, v, u, z), 1);", id="entries are parameters"),
        pytest.param("y ~ normal(csr_matrix_times_vector(N, q, w * 2, v, u, z), 1);", id="entries are computed"),
        pytest.param("z ~ normal(csr_matrix_times_vector(q, q, w, v, u, z), 1); y ~ normal(z[row], 1);", id="no rows"),
    ],
)
def test_other_products_stay(model: str) -> None:
    assert with_dense_rows(read(model)) is None
