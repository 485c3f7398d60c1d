"""A run that is killed anywhere and started again ends as if nothing had happened."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments import run
from tests.experiments.killed import arguments, die, dying, executed, with_answers, written

ROOT = Path(__file__).parents[2]
METHODS = ("tosca", "tosca_routed", "l2p", "ease", "simplecil")
pytestmark = pytest.mark.filterwarnings("ignore:all .* answers", "ignore:of .* prompts")


@pytest.fixture(scope="module", autouse=True)
def _answers():
    finish = run.Run.finish
    with_answers()
    yield
    run.Run.finish = finish


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What an uninterrupted run of each method gives; made when first asked for."""
    made = {}

    def of(method):
        if method not in made:
            made[method] = written(executed(arguments(tmp_path_factory.mktemp("whole"), method)))
        return made[method]

    return of


def in_process(target, *arguments):
    process = multiprocessing.get_context("fork").Process(target=target, args=arguments)
    process.start()
    process.join(120)
    return process.exitcode


SLOW = [
    ("tosca", "writing", 1),
    ("tosca", "writing", 15),
    ("tosca", "training", 20),
    ("tosca_routed", "training", 14),
    ("tosca_routed", "evaluation", 2),
    ("l2p", "training", 17),
    ("ease", "evaluation", 3),
]


@pytest.mark.parametrize(
    ("method", "event", "count"),
    [
        ("tosca", "extraction", 2),
        ("tosca", "training", 14),
        ("tosca", "writing", 6),
        ("simplecil", "evaluation", 4),
        *(pytest.param(*point, marks=pytest.mark.slow) for point in SLOW),
    ],
)
def test_killed_and_started_again(method, event, count, whole, tmp_path):
    words = arguments(tmp_path, method)
    assert in_process(die, words, event, count) == -signal.SIGKILL
    folder = executed(words)
    tables, answers = written(folder)
    assert answers is not None
    assert (tables, answers) == whole(method)
    assert not folder.with_name(folder.name + ".partial").exists()


@pytest.mark.slow
def test_killed_again_and_again(whole, tmp_path):
    """Each start gets a little further."""
    words, ends = arguments(tmp_path), []
    for event, count in (("extraction", 1), ("writing", 2), ("training", 5), ("evaluation", 2),
                         ("training", 12), ("writing", 3)):  # fmt: skip
        ends.append(in_process(die, words, event, count))
    assert ends == [-signal.SIGKILL] * 6
    assert written(executed(words)) == whole("tosca")


def interrupted(words, count):
    sys.argv = ["run", *words]
    # a suite that was started in the background has it ignored
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stderr = open(os.environ["SAID"], "w", buffering=1)  # noqa: SIM115
    dying("training", count, signal.SIGINT)
    run.main()


def test_ctrl_c_says_how_to_go_on(whole, tmp_path, monkeypatch):
    said = tmp_path / "said.txt"
    monkeypatch.setenv("SAID", str(said))
    words = arguments(tmp_path / "results")
    assert in_process(interrupted, words, 14) == 1
    assert "the same command takes the run up after its last finished task" in said.read_text()
    assert written(executed(words)) == whole("tosca")


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("tosca", ()),
        pytest.param("tosca", ("method.train_views=fresh",), marks=pytest.mark.slow),
        pytest.param("l2p", ("method.train_views=fresh",), marks=pytest.mark.slow),
        pytest.param("ease", (), marks=pytest.mark.slow),
    ],
)
def test_the_same_seeds_give_the_same_numbers_with_workers_too(method, more, whole, tmp_path):
    two = written(executed(arguments(tmp_path / "two", method, "num_workers=2", *more)))
    none = written(executed(arguments(tmp_path / "none", method, *more))) if more else whole(method)
    assert two == none


def work(words):
    executed(words)


def test_two_processes_in_one_results_folder(whole, tmp_path):
    """The same run twice at once: one does it, the other waits and finds it finished."""
    words = arguments(tmp_path)
    other = multiprocessing.get_context("fork").Process(target=work, args=(words,))
    other.start()
    folder = executed(words)
    finished = (folder / "run.json").stat().st_mtime_ns
    other.join(120)
    assert other.exitcode == 0 and (folder / "run.json").stat().st_mtime_ns == finished
    assert written(folder) == whole("tosca")


def command(words):
    return [sys.executable, "-m", "tests.experiments.killed", *words]


def started(words):
    """Start the run's process; return it when the run itself begins."""
    process = subprocess.Popen(
        command(words), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout.readline() == "begins\n"
    return process


@pytest.mark.slow
@pytest.mark.parametrize("point", range(20))
def test_killed_at_a_random_moment(point, whole, tmp_path):
    """From outside, at any moment of the run."""
    method = METHODS[point % len(METHODS)]
    measured = started(arguments(tmp_path / "measured", method))
    start = time.monotonic()
    measured.communicate(timeout=300)
    length = time.monotonic() - start
    words = arguments(tmp_path / "killed", method)
    process = started(words)
    time.sleep(random.Random(point).uniform(0, 0.95 * length))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    subprocess.run(command(words), cwd=ROOT, check=True, capture_output=True)
    folder = next((tmp_path / "killed").glob("glyphs/*/*/seed-1993"))
    assert written(folder) == whole(method)
