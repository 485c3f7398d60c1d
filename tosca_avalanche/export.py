"""One ONNX file for a ToscaNet: backbone, all modules, the head and the selection in one graph."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.func import functional_call

from tosca_avalanche.errors import ExportError
from tosca_avalanche.files import atomic_write
from tosca_avalanche.modules.tosca_net import ToscaNet
from tosca_avalanche.seeding import generator
from tosca_avalanche.selection import entropy, select_entropy
from tosca_avalanche.version import __version__

CHECK_IMAGES = 16
INPUTS = ("images", "features")
# protobuf, in which an ONNX file is written, stops at 2 GiB
MAX_BYTES = 2**31 - 2**20


class ToscaGraph(nn.Module):
    """What is exported: a net at rest, its modules stacked, every choice made per image.

    :param net: a net with at least one task.
    :param inputs: "images" [B, 3, H, W], as the backbone's transform gives them, or
        "features" [B, d].

    Shapes: output [B, width] as :meth:`ToscaNet.classify` gives it, and the chosen module
    [B], int64.
    """

    def __init__(self, net: ToscaNet, inputs: str) -> None:
        super().__init__()
        self.net, self.inputs = net, inputs
        self.answer, self.doubt = RULES[net.selection]
        first = dict(net.bank.luca[0].named_parameters())
        self.stacked = {
            name: torch.stack([m.get_parameter(name).detach() for m in net.bank.luca])
            for name in first
        }

    def row_logits(self, z: Tensor) -> Tensor:
        """Return every module's logits of every row, [T, B, R]."""
        every: Tensor = self.net.head(functional_call(self.net.bank.luca[0], self.stacked, (z,)))
        return every

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs [B, width] and the chosen module [B]."""
        z = self.net.backbone.module(x) if self.inputs == "images" else x
        class_logits, modules = self.answer(self, z)
        return self.net.to_outputs(class_logits), modules


def answer_entropy(graph: ToscaGraph, z: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logits [B, C] of the module of lowest entropy, ties to the lowest, and it [B]."""
    logits = graph.net.merge_rows(graph.row_logits(z))
    modules = select_entropy(logits)
    index = modules.reshape(1, -1, 1).expand(1, -1, logits.shape[2])
    return logits.gather(0, index).squeeze(0), modules


def answer_routed(graph: ToscaGraph, z: Tensor) -> tuple[Tensor, Tensor]:
    """Return the scores [B, C] of router and modules, and the module of the best class [B]."""
    return graph.net.routed_scores(z, graph.row_logits(z))


def entropies(graph: ToscaGraph, z: Tensor) -> Tensor:
    """Return each module's entropy [T, B]."""
    return entropy(graph.net.module_logits(z))


def shortfalls(graph: ToscaGraph, z: Tensor) -> Tensor:
    """Return how far below zero each task's best class scores, [T, B]."""
    scores = graph.net.classify(z)
    return torch.stack([-scores[:, own].amax(dim=1) for own in graph.net.task_classes])


Answer = Callable[[ToscaGraph, Tensor], tuple[Tensor, Tensor]]
# a rule joins by two functions of tensors alone: (graph, features) -> class logits, module, and
# (graph, features) -> what the chosen module has least of, by which near ties are known
RULES: dict[str, tuple[Answer, Callable[[ToscaGraph, Tensor], Tensor]]] = {
    "entropy": (answer_entropy, entropies),
    "gaussian-ridge": (answer_routed, shortfalls),
}


@dataclass(frozen=True)
class ExportCheck:
    """How far the written file and torch were apart.

    :param path: the file.
    :param inputs: how many inputs were compared, in batches of several sizes.
    :param largest_difference: between the outputs of inputs answered by the same module.
    :param near_ties: inputs answered by another module because two modules are equally
        good but for rounding.
    """

    path: Path
    inputs: int
    largest_difference: float
    near_ties: int


def export_onnx(
    net: ToscaNet,
    path: str | Path,
    *,
    inputs: str = "images",
    examples: Tensor | None = None,
    tolerance: float = 1e-3,
) -> ExportCheck:
    """Write a net as ONNX, then run the file with onnxruntime and compare it with torch.

    The graph has one input, ``images`` [B, 3, H, W] or ``features`` [B, d], and the outputs
    ``outputs`` [B, width] and ``module`` [B]; B is free. Images are what the backbone's
    evaluation transform gives; the file's metadata states that transform, the backbone's
    name and fingerprint, and the labels seen, as JSON. Weights are stored in float32.
    The file appears whole and checked, or not at all.

    Needs the extra ``onnx``: ``pip install 'tosca_avalanche[onnx]'``.

    :param net: a net that has learned at least one task.
    :param inputs: "images" for the backbone and all, "features" for what comes after it.
    :param examples: inputs to trace and compare with, at least two; by default seeded noise
        in the shape that the transform gives.
    :param tolerance: largest difference of outputs that passes.
    :return: what the comparison found.
    :raises ExportError: no extra, no task, a selection rule that has no graph, a backbone
        under autocast, a model above 2 GiB, or a file that answers otherwise.
    """
    _refuse(net, inputs)
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ExportError(
            f"export_onnx needs the package {error.name!r}: pip install 'tosca_avalanche[onnx]'"
        ) from error
    device, training, passed = net.device, net.training, net.backbone.images_passed
    given = _examples(net, inputs) if examples is None else examples.detach().float()
    if len(given) < 2:
        raise ExportError("examples: pass at least two inputs, for one alone fixes the batch size")
    try:
        net.cpu().eval()
        graph = ToscaGraph(net, inputs).eval()
        with torch.no_grad():
            # the index of the rows and the router's solution are made once, outside the graph
            blank = given.new_zeros(1, net.backbone.embed_dim).cpu()
            net.merge_rows(net.head(blank))
            net.classify(blank)
            found: list[ExportCheck] = []

            def write(temporary: Path) -> None:
                _write(graph, given.cpu(), temporary)
                found.append(_check(graph, given.cpu(), temporary, Path(path), tolerance))

            atomic_write(path, write)
    finally:
        net.to(device).train(training)
        net.backbone.images_passed = passed
    return found[0]


def _refuse(net: ToscaNet, inputs: str) -> None:
    if inputs not in INPUTS:
        raise ExportError(f"inputs={inputs!r} is unknown; choose one of {INPUTS}")
    if not net.n_tasks:
        raise ExportError("this net has learned no task yet: there is nothing to export")
    if net.selection not in RULES:
        raise ExportError(
            f"selection={net.selection!r} has no graph; these have one: {', '.join(RULES)}"
        )
    if inputs == "images" and net.backbone.precision != "float32":
        raise ExportError(
            f"backbone {net.backbone.name!r} runs in {net.backbone.precision}, the file would not: "
            f"load it with precision='float32', or export with inputs='features'"
        )
    parts = (net.bank, net.head, *([net.backbone] if inputs == "images" else []))
    size = sum(t.numel() * 4 for part in parts for t in part.state_dict().values())
    if size > MAX_BYTES:
        raise ExportError(
            f"the model has {size / 2**30:.1f} GiB, an ONNX file holds 2: export with "
            f"inputs='features'"
        )


def _examples(net: ToscaNet, inputs: str) -> Tensor:
    if inputs == "features":
        shape: tuple[int, ...] = (net.backbone.embed_dim,)
    else:
        transforms = net.backbone.transforms
        if not {"size", "input_size"} & transforms.parameters.keys():
            raise ExportError(
                f"the transform {transforms.preset!r} of backbone {net.backbone.name!r} does not "
                f"say the size of its images: pass examples=, a tensor [N, 3, H, W]"
            )
        shape = tuple(transforms.eval(Image.new("RGB", (256, 256))).shape)
    return torch.randn(CHECK_IMAGES, *shape, generator=generator(0, "onnx"))


def _write(graph: ToscaGraph, examples: Tensor, path: Path) -> None:
    program = torch.onnx.export(
        graph,
        (examples[:2],),
        dynamo=True,
        external_data=False,
        input_names=[graph.inputs],
        output_names=["outputs", "module"],
        dynamic_shapes=({0: torch.export.Dim("batch", min=1)},),
        verbose=False,
    )
    if program is None:
        raise ExportError("torch.onnx.export gave no program")
    backbone = graph.net.backbone
    about: dict[str, Any] = {
        "tosca_avalanche": __version__,
        "selection": graph.net.selection,
        "task_classes": graph.net.task_classes,
        "backbone": {"name": backbone.name, "fingerprint": backbone.fingerprint},
        "transform": backbone.transforms.parameters,
    }
    program.model.metadata_props.update({k: json.dumps(v) for k, v in about.items()})
    program.save(path, external_data=False)


def _check(
    graph: ToscaGraph, examples: Tensor, path: Path, target: Path, tolerance: float
) -> ExportCheck:
    """Compare file and torch on batches of all, of one and of a few examples."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    worst, ties, compared = 0.0, 0, 0
    for batch in (examples, examples[:1], examples[-3:]):
        outputs, modules = session.run(None, {graph.inputs: batch.numpy()})
        z = graph.net.features(batch) if graph.inputs == "images" else batch
        expected = graph.net.classify(z).numpy()
        assert graph.net.last_modules is not None
        own = graph.net.last_modules.numpy()
        same = own == modules
        uncertain = graph.doubt(graph, z).numpy()
        image = np.arange(len(batch))
        gap = np.abs(uncertain[modules, image] - uncertain[own, image])
        if (gap > tolerance).any():
            i = int(gap.argmax())
            raise ExportError(
                f"the file chooses module {modules[i]} for example {i}, torch module {own[i]}, "
                f"which is {gap[i]:.3g} better; {target} was not written"
            )
        ties, compared = ties + int((~same).sum()), compared + len(batch)
        difference = np.abs(outputs - expected)[same]
        if difference.size:
            worst = max(worst, float(difference.max()))
    if not worst <= tolerance:
        raise ExportError(
            f"the file's outputs differ from torch's by up to {worst:.3g}, more than "
            f"tolerance={tolerance}; {target} was not written"
        )
    return ExportCheck(target, compared, worst, ties)
