"""Libraries that are loaded in one thread and used in others."""

import subprocess
import sys
from pathlib import Path

from stansub.stan.compilation import compile_model

REDUCE_SUM = Path(__file__).parents[2] / "stan_models" / "logistic_third_derivative.stan"

SCRIPT = """
import sys, threading
from pathlib import Path
import numpy as np
from stansub.stan.toolchain.library import Library

found = []
thread = threading.Thread(target=lambda: found.append(Library(Path(sys.argv[1]))))
thread.start()
thread.join()
n = 20_000
x = ",".join(["[1.0]"] * n)
model = found[0].model(f'{{"N": {n}, "K": 1, "y": [{",".join("0" * n)}], "x": [{x}]}}'.encode())
for _ in range(20):
    model.log_density_gradient(np.zeros(2))
print("done")
"""


def test_gradients_of_reduce_sum_outlive_the_thread_that_loaded_the_library() -> None:
    """A thread of the task scheduler may get the id of one that has ended."""
    path = compile_model(REDUCE_SUM).original.path
    for _ in range(3):
        done = subprocess.run([sys.executable, "-P", "-c", SCRIPT, path], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
