"""The page's files: kept by browsers for as long as they stay the same, and copied by the page's service worker, which
shows them while the server is away. Knows files and headers; knows no question.
"""

import hashlib
from functools import lru_cache
from pathlib import Path

from flask import Flask, Response, render_template, request

YEAR_S = 365 * 24 * 3600
WITHOUT_SERVER = ("*.js", "*.css", "*.svg", "vendor/*.js")  # PDF pages are of no use without one


def serve(app: Flask) -> None:
    """URLs of static files change with the file, so browsers may keep what they name; without `v` they ask again."""
    static = Path(app.static_folder)

    @app.url_defaults
    def add_version(endpoint: str, values: dict) -> None:
        path = static / values.get("filename", "")
        if endpoint == "static" and path.is_file():
            values["v"] = _version(path, path.stat().st_mtime_ns)

    @app.after_request
    def keep_versioned(response: Response) -> Response:
        if request.endpoint == "static" and "v" in request.args and response.status_code == 200:
            response.headers["Cache-Control"] = f"public, max-age={YEAR_S}, immutable"
        return response

    @app.get("/service-worker.js")
    def service_worker():
        """Asked for by browsers whenever they open the page; it differs when any file of the page does."""
        files = sorted(path for pattern in WITHOUT_SERVER for path in static.glob(pattern))
        version = _version_of([*files, *Path(app.root_path, app.template_folder).glob("*")])
        names = [f"static/{path.relative_to(static).as_posix()}" for path in files]
        response = Response(render_template("service-worker.js", version=version, files=names))
        response.mimetype = "text/javascript"
        response.headers["Cache-Control"] = "no-cache"
        return response


def _version_of(paths: list[Path]) -> str:
    parts = [f"{path.name} {_version(path, path.stat().st_mtime_ns)}" for path in paths]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


@lru_cache(maxsize=512)
def _version(path: Path, _changed_ns: int) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:10]
