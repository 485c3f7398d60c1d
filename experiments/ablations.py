"""The ablations and analyses of the paper, by name: which runs, and what of them is shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from experiments import module_study

PLAIN = "tosca"


@dataclass(frozen=True)
class Variant:
    """One row: a method with settings of its own.

    :param overrides: over those of the command line; they hold a label of their own where
        the protocol does not keep the runs apart. Without any, the runs are those that any
        ablation shares.
    """

    setting: str
    method: str = PLAIN
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ablation:
    """A named plan.

    :param about: what it is, in a line.
    :param variants: from the methods and a function that gives the width d of the backbone.
    :param measures: columns of the table, keys of ``measures.MEASURES`` or of the study's own.
    :param drawn: those of them that the figure shows.
    :param relative: those that are also given relative to another row.
    :param reference: that row: "tosca", or "best" for the highest mean.
    :param baseline: how the name of a row ends, from which the accuracies of all are given as
        differences too.
    :param methods: the default of ``methods=[...]``; which one can choose where ``open`` is set.
    :param published: text by measure, printed beside the relative ones.
    :param study: takes the place of finished runs, see ``module_study``.
    """

    about: str
    variants: Callable[[list[str], Callable[[], int]], list[Variant]]
    measures: tuple[str, ...] = ()
    drawn: tuple[str, ...] = ()
    relative: tuple[str, ...] = ()
    reference: str = PLAIN
    baseline: str = ""
    methods: tuple[str, ...] = (PLAIN,)
    open: bool = False
    note: str = ""
    published: tuple[tuple[str, str], ...] = ()
    study: module_study.Study | None = None


def _own(setting: str, label: str, *overrides: str) -> Variant:
    return Variant(setting, PLAIN, (*overrides, f"method.label={PLAIN}-{label}"))


def _fixed(*variants: Variant) -> Callable[[list[str], Callable[[], int]], list[Variant]]:
    return lambda methods, dim: list(variants)


def _bottlenecks(methods: list[str], dim: Callable[[], int]) -> list[Variant]:
    out = []
    for ratio in (8, 16, 32):
        r = max(1, dim() // ratio)
        text = f"d // {ratio} = {r}"
        own = _own(text, f"r{r}", f"method.bottleneck={r}")
        out.append(Variant(f"{text} (default)") if ratio == 16 else own)
    return out


def _each(methods: list[str], dim: Callable[[], int]) -> list[Variant]:
    return [Variant(name, name) for name in methods]


def _flow(name: str) -> Variant:
    return _own(name, name, f"method.flow={name}")


_L1 = "sub-gradient, lambda = "
_PROXIMAL = "method.sparsity=proximal"
_ENTROPY_BATCH, _SHUFFLED = "method.selection=entropy-batch", "eval_order=shuffled"
ACCURACY = ("A_bar", "A_last")
_COSTS = ("params_total", "params_last_task", "params_trainable", "train_s", "eval_ms_per_image",
          "total_s", "passes_per_image")  # fmt: skip

ABLATIONS = {
    "l1": Ablation(
        "sparsity and accuracy of TOSCA over the weight lambda of its l1 term",
        _fixed(
            _own(f"{_L1}0", "l1-0", "method.l1=0"),
            _own(f"{_L1}1e-4", "l1-1e-4", "method.l1=1e-4"),
            Variant(f"{_L1}5e-4 (default)"),
            _own(f"{_L1}1e-3", "l1-1e-3", "method.l1=1e-3"),
            _own("proximal, lambda = 5e-4", "proximal-5e-4", "method.l1=5e-4", _PROXIMAL),
            _own("proximal, lambda = 1e-3", "proximal-1e-3", "method.l1=1e-3", _PROXIMAL),
            _own("proximal, lambda = 5e-3", "proximal-5e-3", "method.l1=5e-3", _PROXIMAL),
        ),
        ("sparsity_zero", "sparsity_1e-3", *ACCURACY),
        ("sparsity_zero", "sparsity_1e-3", *ACCURACY),
        baseline=", lambda = 0",
        note="Zeros are shares of a module's parameters, biases and LayerNorm included, right "
        "after its task; mean over tasks. A momentum of 0.9 makes the sub-gradient's pull ten "
        "times as strong in all; the proximal step has none, so compare it at ten times lambda.",
    ),
    "bottleneck": Ablation(
        "accuracy and size of TOSCA over the bottleneck r of its modules",
        _bottlenecks,
        (*ACCURACY, "module_numbers", "params_total"),
        (*ACCURACY, "module_numbers"),
        baseline="(default)",
        note="Learned numbers: modules, head rows and sigma, after the last task.",
    ),
    "flow": Ablation(
        "accuracy and size of TOSCA over the order of adapter and calibrator",
        _fixed(
            Variant("adapter-calibrator (default)"),
            *map(_flow, ("calibrator-adapter", "parallel", "adapter", "calibrator")),
        ),
        (*ACCURACY, "module_numbers", "params_total"),
        (*ACCURACY, "module_numbers"),
        baseline="(default)",
        note="Learned numbers: modules, head rows and sigma, after the last task.",
    ),
    "protocols": Ablation(
        "TOSCA and L2P under each protocol: what batches of the test stream give away",
        _fixed(
            Variant("tosca, each image by itself"),
            Variant("tosca, a module a batch, class-sorted", PLAIN,
                    (_ENTROPY_BATCH, "method.eval_mb_size=48", "eval_order=class-sorted")),
            Variant("tosca, a module a batch, shuffled", PLAIN,
                    (_ENTROPY_BATCH, "method.eval_mb_size=48", _SHUFFLED)),
            Variant("tosca, task known", PLAIN, ("method.selection=oracle",)),
            Variant("l2p, each image by itself", "l2p"),
            Variant("l2p, a batch's prompts, class-sorted", "l2p",
                    ("method.batchwise=true", "eval_order=class-sorted")),
            Variant("l2p, a batch's prompts, shuffled", "l2p",
                    ("method.batchwise=true", _SHUFFLED)),
        ),
        (*ACCURACY, "selection_acc"),
        (*ACCURACY,),
        methods=(PLAIN, "l2p"),
        note="Only the per-image rows are answers to single images: in class-sorted batches the "
        "task leaks through the batch, and the last row of TOSCA is told the task. Rows of "
        "different protocols are no ranking of methods. L2P with the vote also trains with it.",
    ),
    "similarity": Ablation(
        "cosine similarity between the modules of one stream, with l1, without, and untrained",
        _fixed(
            Variant("lambda = 5e-4 (default)"),
            _own("lambda = 0", "l1-0", "method.l1=0"),
        ),
        tuple(module_study.SIMILARITIES),
        note="Mean of the cosines between different modules. Parameters: all of a module, "
        "flattened; LayerNorm's weights near 1 dominate them. Matrices: W1, W2, V1 and V2 alone. "
        "Outputs: L_i(z) against L_j(z), mean over all training images of the stream. "
        "Untrained: modules as drawn from the same seeds, which is what no learning gives. A "
        "module that is all zeros has cosine 0 with any.",
        study=module_study.similarity,
    ),
    "tsne": Ablation(
        "t-SNE of test images: raw features, adapter alone, and LuCA",
        _fixed(Variant("tosca")),
        tuple(module_study.SEPARATIONS),
        note="Each image passes the module of its OWN task: adapter and LuCA use the task label "
        "here, which also moves tasks apart. Silhouette score and leave-one-out 1-nearest-"
        "neighbour accuracy, both by class and Euclidean distance: in the features (d numbers), "
        "and in the map (2 numbers, of the CSV beside the figure). Within the task: the nearest "
        "image of the same task, which tells raw features the task as well.",
        study=module_study.tsne,
    ),
    "tasks": Ablation(
        "average task accuracy: how well each task is answered right after it was learned",
        _each,
        ("avg_task_acc", "kept", "A_last"),
        ("avg_task_acc", "kept", "A_last"),
        ("avg_task_acc",),
        "best",
        methods=(PLAIN, "tosca_routed", "simplecil", "slda"),
        open=True,
        note="Average task accuracy: mean over t of the accuracy on task t right after learning "
        "it, among all classes seen so far (plasticity). Kept: the mean accuracy on each task "
        "after the last one, over it.",
    ),
    "cost": Ablation(
        "what the methods cost, beside TOSCA",
        _each,
        ("epochs", *_COSTS, "images_passed"),
        ("params_total", "params_trainable", "train_s", "eval_ms_per_image"),
        _COSTS,
        methods=(PLAIN, "simplecil", "ease"),
        open=True,
        note="Learned numbers count buffers such as prototypes. Times are of this machine, and of "
        "features from the store where it has them: images passed tells which run computed "
        "them. The published figures are the paper's, for ViT-B/16 against per-layer adapters "
        "of width 64: 1,189,632 parameters a task against 149,808 of a module, and the time in "
        "total.",
        published=(("params_trainable", "about 8"), ("total_s", "about 2.5")),
    ),
}  # fmt: skip


def find_ablation(name: str) -> Ablation:
    """Return an ablation by its name.

    :raises ValueError: there is none of that name; all are named with a line each.
    """
    if name not in ABLATIONS:
        known = "\n".join(f"  {key:<11} {one.about}" for key, one in ABLATIONS.items())
        what = f"there is no ablation {name!r}:" if name else "which ablation?"
        raise ValueError(f"{what} python -m experiments.ablate NAME, with one of\n{known}")
    return ABLATIONS[name]
