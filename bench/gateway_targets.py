"""What is measured: our gateway in its production configuration, nginx that only passes bytes on, the mock itself.

All listen on loopback and send to the same mock. The door is the dialect the client speaks; a pair is door and upstream.
"""

import os
import shutil
import sys
from pathlib import Path

import msgspec
from gateway_processes import Service, free_port
from load import Load
from load_requests import DOORS, PATHS

_BENCH = Path(__file__).parent
_KEY = "sk-bench-0123456789abcdef"

NGINX_MISSING = (
    "nginx is not installed, and it is what the gateway is compared with. "
    "Debian, Ubuntu: apt-get install -y nginx-light; Fedora: dnf install nginx; Alpine: apk add nginx"
)

_NGINX = """
worker_processes 1;
daemon off;
pid {home}/nginx.pid;
error_log {home}/error.log warn;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    keepalive_requests 1000000;
    client_body_temp_path {home}/body;
    proxy_temp_path {home}/proxy;
    fastcgi_temp_path {home}/fastcgi;
    uwsgi_temp_path {home}/uwsgi;
    scgi_temp_path {home}/scgi;
    upstream mock {{ server 127.0.0.1:{mock}; keepalive 1024; keepalive_requests 1000000; }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{
            proxy_pass http://mock;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
            proxy_read_timeout 300s;
        }}
    }}
}}
"""

_GATEWAY = """
[server]
host = "127.0.0.1"
api_keys = ["sk-other-0000000000000000", "sk-third-1111111111111111", "{key}"]
metrics = true

[log]
format = "json"
level = "info"

[store]
{store}
"""

_NO_STORE = 'policy = "off"'

_UPSTREAM = """
[upstreams.{kind}]
kind = "{kind}"
base_url = "http://127.0.0.1:{mock}/v1"
api_key = "sk-upstream"

[[routes]]
model = "{kind}-*"
upstream = "{kind}"
"""


_OTEL = """
[otel]
endpoint = "http://127.0.0.1:{collector}"
"""


class Pair(msgspec.Struct, frozen=True):
    door: str
    upstream: str

    def __str__(self) -> str:
        return f"{self.door} → {self.upstream}"


class Contestant(msgspec.Struct, frozen=True, kw_only=True):
    """A service, asked in one way. `share`: how much of the usual load it gets; slow ones would take all day.

    paced_streams: how many streams of a hundred events a second it can keep up with.
    """

    label: str
    door: str
    upstream: str = ""
    service: Service
    model: str = "mock"
    headers: tuple[str, ...] = ()
    share: float = 1.0
    paced_streams: int = 32

    def load(self) -> Load:
        return Load(
            port=self.service.port, dialect=self.door, model=self.model, headers=self.headers
        )


def pair_of(text: str) -> Pair:
    """`chat:responses`, or with an arrow, as the tables write it.

    Raises:
        ValueError: it is no pair of dialects.
    """
    door, _, upstream = text.replace("→", ":").replace("->", ":").partition(":")
    pair = Pair(door.strip(), upstream.strip())
    if pair.door not in DOORS or pair.upstream not in PATHS:
        raise ValueError(f"expected door:upstream of {', '.join(DOORS)}; got {text!r}")
    return pair


def start_mock(home: Path) -> Service:
    port = free_port()
    command = [sys.executable, str(_BENCH / "mock_upstream.py"), "--port", str(port)]
    mock = Service(command, port, home / "mock.log", is_target=False)
    mock.wait_ready()
    return mock


def nginx_program() -> str | None:
    """Where nginx is; it is often outside a user's PATH."""
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def start_nginx(program: str, home: Path, mock: int) -> Service:
    """One worker that forwards every read at once and translates nothing."""
    port = free_port()
    folder = home / "nginx"
    folder.mkdir(exist_ok=True)
    config = folder / "nginx.conf"
    config.write_text(_NGINX.format(home=folder, mock=mock, port=port), encoding="utf-8")
    service = Service([program, "-p", str(folder), "-c", str(config)], port, home / "nginx.log")
    service.wait_ready()
    return service


def write_config(
    home: Path, mock: int, store: Path | None = None, collector: int | None = None
) -> Path:
    """Keys, metrics, limits, routes and a JSON log line per request: as one would run it.

    store: the SQLite file that responses are kept in; None: they are not kept.
    collector: the port of what takes traces and metrics by OTLP; None: there are none.
    """
    name = "stored" if store is not None else "plain" if collector is None else "traced"
    config = home / f"dragoman-{name}.toml"
    kept = _NO_STORE if store is None else f'url = "sqlite://{store}"'
    upstreams = "".join(_UPSTREAM.format(kind=kind, mock=mock) for kind in PATHS)
    text = _GATEWAY.format(key=_KEY, store=kept) + upstreams
    if collector is not None:
        text += _OTEL.format(collector=collector)
    config.write_text(text, encoding="utf-8")
    return config


def start_gateway(
    home: Path,
    mock: int,
    store: Path | None = None,
    *options: str,
    collector: int | None = None,
) -> Service:
    port = free_port()
    config = write_config(home, mock, store, collector)
    command = [sys.executable, "-m", "dragoman", "serve"]
    command += ["--config", str(config), "--port", str(port), *options]
    service = Service(command, port, home / "gateway.log")
    service.wait_ready()
    return service


def gateway_label(pair: Pair) -> str:
    return f"dragoman {pair}"


def gateway_contestant(service: Service, pair: Pair) -> Contestant:
    return Contestant(
        label=gateway_label(pair),
        door=pair.door,
        upstream=pair.upstream,
        service=service,
        model=f"{pair.upstream}-mock",
        headers=(f"authorization: Bearer {_KEY}",),
    )
