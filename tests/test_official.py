"""Files in the layout of the authors' code, against a literal reading of their forward."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tosca_avalanche.errors import ImportedModelError
from tosca_avalanche.modules import ToscaNet
from tosca_avalanche.official import from_official

D, R = 32, 3


class TheirTask(nn.Module):
    """One task as the description has it: adapter, norm after the residual, calibrator."""

    def __init__(self, classes, seed):
        super().__init__()
        self.adapter = nn.Sequential(nn.Linear(D, R), nn.GELU(), nn.Linear(R, D))
        self.norm = nn.LayerNorm(D)
        self.calibrator = nn.Sequential(
            nn.Linear(D, R, bias=False), nn.ReLU(), nn.Linear(R, D, bias=False), nn.Sigmoid()
        )
        self.classifier = nn.ParameterDict(
            {"weight": torch.empty(classes, D), "sigma": torch.empty(1)}
        )
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.randn(p.shape, generator=generator))
            self.classifier["sigma"].fill_(3.0 + seed)

    def token(self, z):
        h = self.norm(z + self.adapter(z))
        return h * self.calibrator(h)

    def parts(self):
        return {
            name: {k: v.clone() for k, v in getattr(self, name).state_dict().items()}
            for name in ("adapter", "calibrator", "norm", "classifier")
        }


def their_logits(tasks, z, rows, sigma):
    """Every module of theirs with the newest head, [T, B, C], one image after the other."""
    out = torch.empty(len(tasks), len(z), len(rows))
    for t, task in enumerate(tasks):
        for b in range(len(z)):
            x = task.token(z[b : b + 1])[0]
            for c in range(len(rows)):
                out[t, b, c] = sigma * F.cosine_similarity(x, rows[c], dim=0)
    return out


def their_answer(logits):
    """Per image the module of lowest softmax entropy."""
    p = logits.softmax(-1)
    chosen = -(p * p.log()).sum(-1)
    return chosen.argmin(0)


@pytest.fixture
def tasks():
    return [TheirTask(classes, seed) for seed, classes in enumerate((2, 5, 6))]


@pytest.fixture
def z():
    return torch.randn(20, D, generator=torch.Generator().manual_seed(9))


def written(folder, tasks, first=0, change=lambda parts, t: parts):
    folder.mkdir(exist_ok=True)
    for t, task in enumerate(tasks):
        torch.save(change(task.parts(), t), folder / f"tosca_v2_task_{t + first}.pth")
    return folder


@torch.no_grad()
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("flat", [False, True])
def test_equal_logits(backbone, tmp_path, tasks, z, first, flat):
    def flattened(parts, t):
        return {f"{p}.{k}": v for p, own in parts.items() for k, v in own.items()}

    change = flattened if flat else (lambda parts, t: parts)
    net = from_official(written(tmp_path / "f", tasks, first, change), backbone)
    rows, sigma = tasks[-1].classifier["weight"], tasks[-1].classifier["sigma"]
    expected = their_logits(tasks, z, rows, sigma)
    torch.testing.assert_close(net.module_logits(z), expected, atol=1e-5, rtol=1e-4)
    modules = their_answer(expected)
    outputs = net.classify(z)
    assert torch.equal(net.last_modules, modules) and len(set(modules.tolist())) > 1
    torch.testing.assert_close(outputs, expected[modules, torch.arange(20)], atol=1e-5, rtol=1e-4)
    assert net.task_classes == [[0, 1], [2, 3, 4], [5]] and not net.training
    assert not any(p.requires_grad for p in net.bank.parameters())


@torch.no_grad()
@pytest.mark.parametrize("old_rows", ["frozen", "trainable"])
def test_labels_of_a_class_order(backbone, tmp_path, tasks, z, old_rows):
    """Row i is the class ``class_order[i]``, and its column is that label's."""
    folder, order = written(tmp_path / "f", tasks), [7, 3, 9, 0, 4, 2]
    plain = from_official(folder, backbone)
    net = from_official(folder, backbone, class_order=order, old_rows=old_rows)
    assert net.task_classes == [[3, 7], [0, 4, 9], [2]]
    torch.testing.assert_close(net.classify(z)[:, order], plain.classify(z))
    assert set(net.classify(z).argmax(1).tolist()) <= set(order)
    net.add_task([20])  # and it learns on
    assert net.classes == [3, 7, 0, 4, 9, 2, 20]


@torch.no_grad()
def test_own_rows_other_names_and_left_over_tensors(backbone, tmp_path, tasks, z):
    sizes = [0, 2, 5, 6]

    def change(parts, t):
        parts["fc"] = {"w": parts["classifier"].pop("weight")[sizes[t] :]}
        parts["head"] = {"scale": parts.pop("classifier")["sigma"][0]}
        return {**parts, "epoch": 20, "optimizer": {"momentum": torch.zeros(3)}}

    folder = written(tmp_path / "f", tasks, change=change)
    keys = {"rows": "fc.w", "sigma": "head.scale"}
    net = from_official(folder, backbone, keys=keys, rows="own", ignore=["optimizer."])
    rows = torch.cat([t.classifier["weight"][n:] for t, n in zip(tasks, sizes, strict=False)])
    expected = their_logits(tasks, z, rows, tasks[-1].classifier["sigma"])
    torch.testing.assert_close(net.module_logits(z), expected, atol=1e-5, rtol=1e-4)
    with pytest.raises(ImportedModelError, match=r"also has optimizer\.momentum"):
        from_official(folder, backbone, keys=keys, rows="own")
    with pytest.raises(ImportedModelError, match=r"task_1\.pth: fc\.w has 3 rows|rows after 2"):
        from_official(written(tmp_path / "g", tasks[:1] * 2), backbone)


@torch.no_grad()
def test_a_variant_has_fewer_tensors(backbone, tmp_path, tasks, z):
    def change(parts, t):
        return {k: v for k, v in parts.items() if k in ("calibrator", "classifier")}

    net = from_official(written(tmp_path / "f", tasks, change=change), backbone, flow="calibrator")
    row = tasks[-1].classifier["weight"]
    token = z * tasks[1].calibrator(z)
    expected = tasks[-1].classifier["sigma"] * F.cosine_similarity(token[:, None], row[None], -1)
    torch.testing.assert_close(net.module_logits(z)[1], expected, atol=1e-5, rtol=1e-4)


def without(part, key):
    def change(parts, t):
        if t == 1:
            del parts[part][key]
        return parts

    return change


def reshaped(part, key, *shape):
    def change(parts, t):
        if t == 1:
            parts[part][key] = torch.zeros(*shape)
        return parts

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("adapter", "2.bias"), r"task_1\.pth lacks adapter\.2\.bias \(our b2\)"),
        (without("classifier", "sigma"), r"task_1\.pth lacks classifier\.sigma"),
        (reshaped("norm", "weight", 31), r"norm\.weight has shape \[31\] instead of \[32\]"),
        (reshaped("adapter", "0.weight", 4, D), r"\[4, 32\] instead of \[3, 32\]"),
        (reshaped("classifier", "weight", 5, 9), r"\[5, 9\] instead of \[classes, 32\]"),
        (reshaped("classifier", "sigma", 2), r"sigma has shape \[2\]"),
        (lambda parts, t: [1, 2], "no dictionary of tensors"),
        (lambda parts, t: nn.Linear(2, 2), "can't be read as tensors alone"),
    ],
)
def test_files_that_do_not_fit(backbone, tmp_path, tasks, change, message):
    with pytest.raises(ImportedModelError, match=message):
        from_official(written(tmp_path / "f", tasks, change=change), backbone)


def test_folders_that_do_not_fit(backbone, tmp_path, tasks):
    folder = written(tmp_path / "f", tasks)
    (folder / "tosca_v2_task_1.pth").rename(folder / "tosca_v2_task_7.pth")
    with pytest.raises(ImportedModelError, match="none for 1, 3, 4, 5, 6"):
        from_official(folder, backbone)
    (folder / "again_7.pt").write_bytes(b"")
    with pytest.raises(ImportedModelError, match="both task 7"):
        from_official(folder, backbone)
    (folder / "again_7.pt").rename(folder / "a.pt")
    with pytest.raises(ImportedModelError, match="no task number"):
        from_official(folder, backbone)
    (tmp_path / "empty").mkdir()
    for wrong in (tmp_path / "empty", tmp_path / "none"):
        with pytest.raises(ImportedModelError, match=str(wrong)):
            from_official(wrong, backbone)
    two = written(tmp_path / "two", tasks[:2])
    with pytest.raises(ImportedModelError, match="needs 5 distinct labels"):
        from_official(two, backbone, class_order=[0, 1])
    with pytest.raises(ImportedModelError, match="'W9'"):
        from_official(two, backbone, keys={"W9": "x"})
    with pytest.raises(ImportedModelError, match="needs statistics of training"):
        from_official(two, backbone, selection="gaussian-ridge")
    with pytest.raises(ImportedModelError, match="rows='all'"):
        from_official(two, backbone, rows="all")


def test_one_task(backbone, tmp_path, tasks):
    net = from_official(written(tmp_path / "f", tasks[:1]), backbone, selection="entropy-batch")
    assert isinstance(net, ToscaNet) and net.classes == [0, 1]
    assert torch.equal(net.head.rows, tasks[0].classifier["weight"])
