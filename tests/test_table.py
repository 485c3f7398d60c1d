"""The table of tests/README.md names tests that are there, for each kind of fault."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent
TABLE = (TESTS / "README.md").read_text(encoding="utf-8")


def names():
    return {
        node.name
        for path in TESTS.rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def test_every_test_that_the_table_names_is_there():
    named = set(re.findall(r"`(test_\w+)`", TABLE))
    assert len(named) > 80
    assert not named - names()


def test_every_kind_has_a_row_with_tests():
    rows = re.findall(r"^\| (\d+)\. [^|]+ \| ([^|]+) \|$", TABLE, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, 24))
    assert all("`test_" in tests for _, tests in rows)
