"""The page's copy for when the server is away: what is in it, and that it changes with the page."""

import json
import re
from pathlib import Path

from qwenvl.web.assets import _version_of

ROOT = Path(__file__).parents[1]


def worker_of(client) -> tuple[str, list[str]]:
    response = client.get("/service-worker.js")
    assert response.status_code == 200 and response.mimetype == "text/javascript"
    assert response.headers["Cache-Control"] == "no-cache"
    version, files = re.search(r'const VERSION = (".*?");\nconst FILES = (\[.*?\]);', response.text).groups()
    return json.loads(version), json.loads(files)


def test_the_copy_has_every_file_of_the_page_and_needs_no_key(make_client):
    client = make_client(api_keys="a-key-for-readers")
    version, files = worker_of(client)
    ours = {f"static/{path.name}" for pattern in ("*.js", "*.css", "*.svg") for path in (ROOT / "static").glob(pattern)}
    assert ours <= set(files) and len(version) == 16
    for name in files:
        with client.get(f"/{name}") as response:
            assert response.status_code == 200
    assert worker_of(client) == (version, files)
    assert not [name for name in files if "pdfjs" in name]


def test_the_version_changes_with_any_file(tmp_path):
    files = [tmp_path / name for name in ("a.js", "b.css")]
    for path in files:
        path.write_text("one")
    first = _version_of(files)
    assert _version_of(files) == first
    files[1].write_text("two")
    assert _version_of(files) != first
