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
from tosca_avalanche.features.store import spaces

ROOT = Path(__file__).parents[2]
METHODS = ("tosca", "tosca_routed", "l2p", "ease", "simplecil", "joint", "ranpac", "mos",
           "finetune", "codaprompt")  # fmt: skip
SMALL = "method.eval_mb_size=4"  # images that pass the backbone at once: three batches a task
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

    def of(*words):
        if words not in made:
            made[words] = written(executed(arguments(tmp_path_factory.mktemp("whole"), *words)))
        return made[words]

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


@pytest.mark.parametrize(
    ("method", "count", "stored"),
    [
        ("tosca", 3, 8),  # of the 12 images of the first task
        ("tosca", 7, 24),  # 12, the 8 that test it, and 4 of the second task
        pytest.param("tosca_routed", 8, 28, marks=pytest.mark.slow),
        pytest.param("ranpac", 3, 8, marks=pytest.mark.slow),
    ],
)
def test_killed_amid_an_extraction(method, count, stored, whole, tmp_path):
    """What has passed the backbone is kept, the rest passes later, and no image passes twice."""
    words = arguments(tmp_path, method, SMALL)

    def images():
        return sum(space["images"] for space in spaces(tmp_path / "features"))

    assert in_process(die, words, "extraction", count) == -signal.SIGKILL
    assert images() == stored
    assert written(executed(words)) == whole(method, SMALL)
    assert images() == 36 + 24


@pytest.mark.slow
def test_killed_again_and_again(whole, tmp_path):
    """Each start gets a little further."""
    words, ends = arguments(tmp_path, "tosca", SMALL), []
    for event, count in (("extraction", 3), ("writing", 2), ("training", 5), ("evaluation", 2),
                         ("training", 12), ("writing", 3)):  # fmt: skip
        ends.append(in_process(die, words, event, count))
    assert ends == [-signal.SIGKILL] * 6
    assert written(executed(words)) == whole("tosca", SMALL)


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


@pytest.fixture(scope="module")
def lengths(tmp_path_factory):
    """How long a run of each method takes from its beginning, in seconds."""
    made = {}

    def of(method):
        if method not in made:
            measured = started(arguments(tmp_path_factory.mktemp("measured"), method))
            start = time.monotonic()
            measured.communicate(timeout=300)
            assert measured.returncode == 0
            made[method] = time.monotonic() - start
        return made[method]

    return of


@pytest.mark.slow
@pytest.mark.parametrize("point", range(20))
def test_killed_at_a_random_moment(point, whole, lengths, tmp_path):
    """From outside, at any moment of the run."""
    method = METHODS[point % len(METHODS)]
    delay = random.Random(point).uniform(0, 0.95 * lengths(method))
    for attempt in range(5):
        words = arguments(tmp_path / str(attempt), method)
        process = started(words)
        time.sleep(delay * 0.8**attempt)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        if process.returncode == -signal.SIGKILL:
            break  # else it was faster than the measured one, and was finished before
    assert process.returncode == -signal.SIGKILL
    subprocess.run(command(words), cwd=ROOT, check=True, capture_output=True)
    folder = next((tmp_path / str(attempt)).glob("glyphs/*/*/seed-1993"))
    assert written(folder) == whole(method)
