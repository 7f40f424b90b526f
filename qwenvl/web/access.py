"""Who asks, before any handler runs: the key in a header or in a socket's greeting, else the address.

Closed by default: with keys in force, only the page, its files and `/health` are for everybody. Knows HTTP and the
service's `client`; knows nothing of what is asked.
"""

from collections.abc import Mapping
from typing import Any

from flask import Flask, Response, g, request
from flask_socketio import ConnectionRefusedError
from werkzeug.middleware.proxy_fix import ProxyFix

from qwenvl.errors import Unauthorized
from qwenvl.service import Service
from qwenvl.web.render import error_fields

OPEN_ENDPOINTS = ("http.page", "http.health", "static", "service_worker")


def control(app: Flask, service: Service) -> None:
    """Ask every request who it comes from, leave the answer in `g.client`, and count what costs work."""

    @app.before_request
    def identify():
        # What is at no address is 404 for everybody; OPTIONS comes from browsers, without headers.
        if request.endpoint in (None, *OPEN_ENDPOINTS) or request.method == "OPTIONS":
            return
        g.client = service.client(bearer(request.headers), request.remote_addr)
        if request.method == "POST":
            service.count_request(g.client)

    @app.after_request
    def name_the_scheme(response: Response) -> Response:
        if response.status_code == 401:
            response.headers["WWW-Authenticate"] = "Bearer"
        return response


def greet(service: Service, auth: Any) -> str:
    """Who opens a socket; refuse the connection when they may not. Pages send their key in `auth`, programs may too."""
    key = auth.get("api_key") if isinstance(auth, dict) else None
    try:
        return service.client(key or bearer(request.headers), request.remote_addr)
    except Unauthorized as error:
        raise ConnectionRefusedError(str(error), error_fields(error)) from None


def bearer(headers: Mapping[str, str]) -> str | None:
    """The key of `Authorization: Bearer KEY`; None without one."""
    scheme, _, key = headers.get("Authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else None


def behind_proxies(app: Flask, count: int) -> None:
    """Believe the `X-Forwarded-*` headers of as many proxies as are in front, and of none where there are none.

    Call it last: whatever is added to `wsgi_app` later would see the proxy's address.
    """
    if count:
        app.wsgi_app = ProxyFix(app.wsgi_app, x_for=count, x_proto=count, x_host=count)
