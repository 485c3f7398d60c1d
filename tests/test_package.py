"""The package as a whole: floors, file sizes, the wheel, and what the README promises."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FLOORS = [
    {"errors", "registry", "seeding", "files", "version", "backbones", "modules", "features", 
     "selection", "metrics", "records", "plots", "export", "official", "uncertainty", "images",
     "learner", "cli", "__main__"},
    {"plugins", "strategies", "benchmarks"},
]  # fmt: skip


def imports(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    names = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    return names | {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module}


def part(path: Path) -> str:
    return path.relative_to(ROOT / "tosca_avalanche").parts[0].removesuffix(".py")


def sources(*folders: str) -> list[Path]:
    return sorted(p for f in folders for p in (ROOT / f).rglob("*.py"))


@pytest.mark.parametrize("path", sources("tosca_avalanche"), ids=str)
def test_imports_go_down_only(path):
    name, used = part(path), imports(path)
    if name == "__init__":
        return
    level = next(i for i, floor in enumerate(FLOORS) if name in floor)
    allowed = set().union(*FLOORS[: level + 1])
    inside = {u.split(".")[1] for u in used if u.startswith("tosca_avalanche.")}
    assert inside <= allowed, inside - allowed
    assert not any(u.split(".")[0] == "experiments" for u in used)
    if level == 0:
        assert not any(u.split(".")[0] == "avalanche" for u in used)


def test_the_plain_floor_runs_without_avalanche():
    code = (
        "import sys; sys.modules['avalanche'] = None\n"
        "import torch, tosca_avalanche as t\n"
        "net = t.ToscaNet(t.load_backbone('tiny_vit_64'))\n"
        "net.add_task([0, 1]); net.eval()\n"
        "print(net(torch.zeros(1, 3, 64, 64)).shape)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "torch.Size([1, 2])"


def test_no_file_is_long():
    long = {
        str(p.relative_to(ROOT)): n
        for p in sources("tosca_avalanche", "experiments", "tests")
        if (n := len(p.read_text().splitlines())) > 300
    }
    assert not long


def test_public_names_exist():
    import tosca_avalanche

    for name in tosca_avalanche.__all__:
        assert getattr(tosca_avalanche, name) is not None
    with pytest.raises(AttributeError, match="nothing_there"):
        _ = tosca_avalanche.nothing_there


def test_the_wheel(tmp_path):
    """With the weights, without tests and experiments."""
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q"]
    subprocess.run([*command, "-w", str(tmp_path), str(ROOT)], check=True, capture_output=True)
    wheel = zipfile.ZipFile(next(tmp_path.glob("*.whl")))
    names = wheel.namelist()
    assert "tosca_avalanche/backbones/assets/tiny_vit_64.safetensors" in names
    assert "tosca_avalanche/backbones/assets/tiny_vit_64.md" in names
    assert "tosca_avalanche/py.typed" in names
    points = next(n for n in names if n.endswith("entry_points.txt"))
    assert "tosca-avalanche = tosca_avalanche.cli:main" in wheel.read(points).decode()
    tops = {n.split("/")[0] for n in names}
    assert all(t.startswith("tosca_avalanche") for t in tops), tops


def test_the_example_of_the_readme_runs(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks[0].strip().splitlines()) <= 12
    code = blocks[0].replace("TOSCAStrategy(backbone", "TOSCAStrategy(backbone, train_epochs=1")
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "Top1_Acc_Stream" in done.stdout
