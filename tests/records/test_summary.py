"""Means over seeds of hand-computed values."""

import pandas as pd
import pytest

from tosca_avalanche.errors import RecordError
from tosca_avalanche.records import summarise, table


def run(seed, last, forgetting=0.1, protocol="per-image", method="m"):
    head = {"run_id": f"{method}{protocol}{seed}{last}", "method": method, "stream": "s",
            "seed": seed, "protocol": protocol}  # fmt: skip
    values = [(0, "train_s", 1.5), (1, "train_s", 2.0), (1, "A_bar", 0.5), (1, "A_last", last),
              (0, "forgetting_max", None), (1, "forgetting_max", forgetting),
              (0, "params_total", 10), (1, "params_total", 20),
              (0, "passes_per_image", 1), (1, "passes_per_image", 2)]  # fmt: skip
    return [
        {**head, "after_task": t, "eval_task": None, "metric": m, "value": v, "n": 1}
        for t, m, v in values
    ]


def test_mean_std_and_n():
    frame = pd.DataFrame(run(1, 0.2) + run(2, 0.4) + run(3, 0.9))
    out = summarise(frame).set_index("metric")
    # mean 0.5, variance (0.09 + 0.01 + 0.16) / 2
    assert out.loc["A_last", "mean"] == pytest.approx(0.5)
    assert out.loc["A_last", "std"] == pytest.approx(0.13**0.5)
    assert out.loc["A_last", "n"] == 3
    assert out.loc["train_s", "mean"] == pytest.approx(3.5)
    assert out.loc["params_total", "mean"] == 20
    text = table(summarise(frame), "per-image")
    assert "| m | 3 | 50.0 ± 0.0 | 50.0 ± 36.1 | 10.0 ± 0.0 | – | 20 | 2 | 3.5 ± 0.0 | – |" in text


def test_one_seed_has_no_std():
    text = table(summarise(pd.DataFrame(run(1, 0.2))), "per-image")
    assert "| m | 1 | 50.0 | 20.0 | 10.0 | – | 20 | 2 | 3.5 | – |" in text


def test_protocols_stand_apart():
    summary = summarise(pd.DataFrame(run(1, 0.2) + run(1, 0.8, protocol="oracle-task")))
    assert "80.0" not in table(summary, "per-image")
    assert "80.0" in table(summary, "oracle-task")


def test_mixtures_are_refused():
    with pytest.raises(RecordError, match="seed 1 of m"):
        summarise(pd.DataFrame(run(1, 0.2) + run(1, 0.3)))
    with pytest.raises(RecordError, match="some seeds only"):
        summarise(pd.DataFrame(run(1, 0.2) + run(2, 0.3, forgetting=None)))
