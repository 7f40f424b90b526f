"""The picture in the design: imports point down, and every file stays small enough to read in one go."""

import ast
import statistics
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# A module belongs to the first layer that names it or a package around it.
LAYERS = {
    "joins": {"app", "qwenvl.__main__"},
    "web": {"qwenvl.web"},
    "service": {"qwenvl.service", "qwenvl.scheduler", "qwenvl.checks", "qwenvl.desk", "qwenvl.keys",
                "qwenvl.limits", "qwenvl.line", "qwenvl.tickets", "qwenvl.turns", "qwenvl.uploads",
                "qwenvl.watchdog"},
    "engine": {"qwenvl.engine", "qwenvl.kernels"},
    "leaves": {"qwenvl.config", "qwenvl.errors", "qwenvl.messages", "qwenvl.images", "qwenvl.cache", "qwenvl.memory",
               "qwenvl.metrics",
               "qwenvl.native", "qwenvl.room", "qwenvl"},
}  # fmt: skip
MAY_IMPORT = {
    "joins": {"joins", "web", "service", "engine", "leaves"},
    "web": {"web", "service", "leaves"},
    "service": {"service", "leaves"},
    "engine": {"engine", "leaves"},
    "leaves": {"leaves"},
}
WEB_LIBRARIES = {"flask", "werkzeug", "flask_socketio", "flask_compress", "socketio", "engineio", "gevent", "wsproto",
                 "simple_websocket", "gunicorn", "jinja2"}  # fmt: skip
MODEL_LIBRARIES = {"torch", "transformers", "onnxruntime", "safetensors", "tokenizers", "huggingface_hub"}
MAY_USE = {
    "joins": WEB_LIBRARIES,
    "web": WEB_LIBRARIES,
    "service": set(),
    "engine": MODEL_LIBRARIES,
    "leaves": set(),
}
EXCEPTIONS = {("qwenvl.native", "gevent")}  # which must know how to get round it

FILES = sorted([ROOT / "app.py", *(ROOT / "qwenvl").rglob("*.py")])


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer_of(module: str) -> str | None:
    while module:
        for layer, names in LAYERS.items():
            if module in names and (module != "qwenvl" or layer == "leaves"):
                return layer
        module = module.rpartition(".")[0]
        if module == "qwenvl":
            return None  # the package itself is a leaf, but what lies in it must be named
    return None


def imports_of(tree: ast.AST) -> set[str]:
    """Every module that is imported anywhere in a file, functions and conditions included."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports are not used here"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if is_module(name) else node.module for name in names}
    return found


def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def wrong_imports(module: str, source: str) -> list[str]:
    layer = layer_of(module)
    if layer is None:
        return [f"{module} belongs to no layer: add it to LAYERS"]
    wrong = []
    for name in sorted(imports_of(ast.parse(source))):
        top = name.partition(".")[0]
        if top in ("qwenvl", "app"):
            allowed = layer_of(name) in MAY_IMPORT[layer]
        else:
            allowed = top not in (WEB_LIBRARIES | MODEL_LIBRARIES) - MAY_USE[layer] or (module, top) in EXCEPTIONS
        if not allowed:
            wrong.append(f"{module} ({layer}) imports {name}")
    return wrong


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_point_down(path):
    assert wrong_imports(name_of(path), path.read_text()) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("qwenvl.web.routes", "import torch"),
        ("qwenvl.web.routes", "def f():\n    from qwenvl.engine.engine import Engine"),
        ("qwenvl.web.routes", "from qwenvl import engine"),
        ("qwenvl.engine.vision", "from flask import request"),
        ("qwenvl.engine.engine", "from qwenvl import service"),
        ("qwenvl.service", "from qwenvl.web import routes"),
        ("qwenvl.scheduler", "import gevent"),
        ("qwenvl.scheduler", "import torch.nn"),
        ("qwenvl.images", "from qwenvl.service import Service"),
        ("qwenvl.images", "if x:\n    import app"),
        ("qwenvl.utils", "import os"),
    ],
)
def test_the_check_would_notice(module, source):
    assert wrong_imports(module, source)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_files_open_with_what_they_are_and_stay_short(path):
    source = path.read_text()
    assert ast.get_docstring(ast.parse(source)), "say what this module is, and what it does not know"
    assert len(source.splitlines()) < 300


def test_functions_stay_short():
    lengths = {}
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                lengths[f"{name_of(path)}:{node.name}"] = node.end_lineno - node.lineno + 1
    assert [name for name, length in lengths.items() if length > 60] == []
    assert statistics.median(lengths.values()) < 12
