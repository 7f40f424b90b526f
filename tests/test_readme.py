"""The README tells the truth: its settings are the code's, its commands and files exist."""

import dataclasses
import re
from pathlib import Path

from qwenvl import web
from qwenvl.config import Settings, env_name

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_settings_table_equals_the_code():
    rows = re.findall(r"^\| `([A-Z_]+)` \| (?:`([^`]*)`)? ?\| (.*) \|$", README, flags=re.M)
    declared = [(env_name(f), str(f.default), f.metadata["meaning"]) for f in dataclasses.fields(Settings)]
    assert rows == declared


def test_files_it_names_exist():
    names = re.findall(r"\]\(([^)]+)\)|`((?:qwenvl|docs|scripts)/[\w./-]+)`", README)
    assert len(names) > 5
    for name in {a or b for a, b in names}:
        assert (ROOT / name).exists(), name


def test_make_targets_it_names_exist():
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), flags=re.M))
    assert {"run", "test", "lint", "bench"} <= set(re.findall(r"`?make (\w+)", README)) <= targets


def test_paths_it_calls_are_served(make_service):
    served = {str(rule).split("<")[0] for rule in web.create_app(make_service()).url_map.iter_rules()}
    for path in re.findall(r"http://127\.0\.0\.1:5000(/[a-z]+/?)", README):
        assert path in served, path
