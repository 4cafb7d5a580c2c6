"""The rules of who may import what, as functions from source text to violations.

    __main__ → cli → {testing | certify} → {agent | server} → (the package itself) → gateway → state → {engine.run, upstream, store} → {offload | config | recordings} → inspection → {toolcalls | obsidian}
      → {engine (pure) | dialects | textcalls} → core → model → {sse, _json} → errors

A module imports from layers below its own, and from its own; layers in one brace do not import one another. Nothing
here knows an exception: code that needs one belongs in another module.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2] / "src" / "dragoman"

# From the bottom to the top. Members of one group do not import one another.
ORDER: tuple[tuple[str, ...], ...] = (
    ("errors",),
    ("sse", "_json"),
    ("model",),
    ("core",),
    ("engine", "dialects", "textcalls"),
    ("toolcalls", "obsidian"),
    ("inspection",),
    ("offload", "config", "recordings"),
    ("engine.run", "upstream", "store"),
    ("state",),
    ("gateway",),
    ("",),  # dragoman/__init__.py
    ("server", "agent"),
    ("testing", "certify"),
    ("cli",),
    ("__main__",),
)
RANK = {layer: rank for rank, group in enumerate(ORDER) for layer in group}

# Parts of `engine` that run on an event loop; the rest of it decides and is pure.
LAYER_OF_MODULE = {
    "engine.builtin": "engine.run",
    "engine.function_tool": "engine.run",
    "engine.mcp": "engine.run",
    "engine.json_schema": "engine.run",
    "engine.threads": "engine.run",
    "engine.validation": "engine.run",
}

PURE_LAYERS = frozenset(
    (
        "errors",
        "sse",
        "_json",
        "model",
        "core",
        "engine",
        "dialects",
        "textcalls",
        "toolcalls",
        "obsidian",
        "inspection",
        "",
    )
)
PURE_MODULES = frozenset(("upstream.retry",))

# Modules beside the dialects that know all of them, through the registry.
ABOVE_DIALECTS = frozenset(
    (
        *("registry", "translate", "interpret"),
        *("relay", "relay_request"),
    )
)

# The edges where any exception at all is turned into an answer, a log line or an exit code.
SHELLS = frozenset(("gateway", "server", "engine.run", "cli", "__main__"))

IMPURE = frozenset(
    (
        *("asyncio", "anyio", "trio", "concurrent", "threading", "multiprocessing", "subprocess", "signal", "sched"),
        *("socket", "socketserver", "ssl", "select", "selectors", "http", "urllib.request", "ftplib", "smtplib"),
        *("time", "random", "secrets", "uuid", "logging", "warnings"),
        *("os", "pathlib", "shutil", "tempfile", "glob", "fileinput", "importlib", "ctypes"),
    )
)  # fmt: skip
IMPURE_CALLS = frozenset(("open", "print", "input", "breakpoint", "exec", "eval", "__import__"))
CLOCK_READINGS = frozenset(("now", "utcnow", "today"))

JSON_LIBRARIES = frozenset(
    ("json", "orjson", "ujson", "simplejson", "rapidjson", "pydantic", "pydantic_core")
)
FROM_MSGSPEC = frozenset(("Struct", "field", "structs", "msgpack", "UNSET", "UnsetType"))
HOMELESS = frozenset(("utils", "util", "helpers", "helper", "common", "misc"))


def module_name(path: Path, root: Path = ROOT) -> str:
    """`core/fold.py` is `core.fold`, `core/__init__.py` is `core`, `__init__.py` is empty."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules(root: Path = ROOT) -> dict[str, Path]:
    return {module_name(path, root): path for path in sorted(root.rglob("*.py"))}


def layer_of(module: str) -> str | None:
    """The layer with the longest name that the module's name starts with."""
    name = module
    while name not in RANK:
        if name in LAYER_OF_MODULE:
            return LAYER_OF_MODULE[name]
        if not name:
            return None
        name = name.rpartition(".")[0]
        if not name:
            return None
    return name


def violations(
    module: str, source: str, known: frozenset[str], *, is_package: bool = False
) -> list[str]:
    """Every rule this source breaks, one line each. `known` are the names of the modules of the package."""
    tree = ast.parse(source)
    layer = layer_of(module)
    if layer is None:
        return [f"{module}: has no layer; put it where one of the layers is"]
    imports = list(_imports(tree, module, known, is_package=is_package))
    found = [
        *_direction(module, layer, imports),
        *_foreign(module, layer, imports),
        *_any(module, tree),
    ]
    if layer not in SHELLS:
        found += _broad_handlers(module, tree)
    if layer in PURE_LAYERS or module in PURE_MODULES:
        found += _impure_calls(module, tree)
    if HOMELESS & set(module.split(".")):
        found.append(f"{module}: names no idea; name the module for what it holds")
    return found


def _imports(
    tree: ast.Module, module: str, known: frozenset[str], *, is_package: bool
) -> Iterator[tuple[str, str | None, int]]:
    """(imported module, imported name or None, line). Our own modules start with `dragoman`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, None, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, module, is_package=is_package)
            for alias in node.names:
                below = f"{base}.{alias.name}"
                if below.removeprefix("dragoman.") in known and below.startswith("dragoman."):
                    yield below, None, node.lineno
                else:
                    yield base, alias.name, node.lineno


def _absolute(node: ast.ImportFrom, module: str, *, is_package: bool) -> str:
    if not node.level:
        return node.module or ""
    parts = ["dragoman", *module.split(".")] if module else ["dragoman"]
    up = node.level - 1 if is_package else node.level
    kept = parts[: len(parts) - up] if up else parts
    return ".".join([*kept, *([node.module] if node.module else [])])


def _direction(
    module: str, layer: str, imports: list[tuple[str, str | None, int]]
) -> Iterator[str]:
    for target, _, line in imports:
        if target.partition(".")[0] != "dragoman":
            continue
        inner = target.partition(".")[2]
        below = layer_of(inner)
        if below is None:
            yield f"{module}:{line}: imports {target}, which has no layer"
        elif below != layer and RANK[below] >= RANK[layer]:
            yield f"{module}:{line}: {layer or 'the package'} may not import {below or 'the package'} ({target})"
        elif inner.startswith("dialects."):
            yield from _between_dialects(module, inner, line)


def _between_dialects(module: str, target: str, line: int) -> Iterator[str]:
    own, other = _dialect(module), _dialect(target)
    if target.endswith(".wire") and own != other:
        yield f"{module}:{line}: wire types stay inside their dialect ({target})"
    if not module.startswith("dialects.") or own in ABOVE_DIALECTS:
        return
    if other not in (own, "codec", "stream_decoder"):
        yield f"{module}:{line}: dialects do not import one another ({target})"


def _dialect(module: str) -> str:
    parts = module.split(".")
    return parts[1] if parts[0] == "dialects" and len(parts) > 1 else ""


def _foreign(module: str, layer: str, imports: list[tuple[str, str | None, int]]) -> Iterator[str]:
    pure = layer in PURE_LAYERS or module in PURE_MODULES
    for target, name, line in imports:
        package = target.partition(".")[0]
        if package == "dragoman":
            continue
        if _is_json(target, name):
            if module != "_json":
                yield f"{module}:{line}: JSON is read and written in _json only ({target})"
        elif pure and not _is_pure(target, name):
            yield f"{module}:{line}: a pure layer imports {target}"


def _is_json(target: str, name: str | None) -> bool:
    # Structs are msgspec's, and so are the functions over them; everything else of it reads or writes JSON.
    if target == "msgspec":
        return name not in FROM_MSGSPEC
    package = target.partition(".")[0]
    return package in JSON_LIBRARIES or (package == "msgspec" and target != "msgspec.structs")


def _is_pure(target: str, name: str | None) -> bool:
    package = target.partition(".")[0]
    names = {package, target, f"{target}.{name}"}
    return not names & IMPURE and (package in sys.stdlib_module_names or package == "msgspec")


def _any(module: str, tree: ast.Module) -> Iterator[str]:
    if module == "_json":
        return
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module="typing" | "typing_extensions", names=names):
                line = node.lineno if {alias.name for alias in names} & {"Any", "*"} else None
            case ast.Attribute(attr="Any"):
                line = node.lineno
            case _:
                line = None
        if line is not None:
            yield f"{module}:{line}: Any is for _json only; use object and narrow it"


def _broad_handlers(module: str, tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.ExceptHandler(type=caught):
                broad = caught is None or _names_everything(caught)
            case ast.Call(
                func=ast.Name(id="suppress") | ast.Attribute(attr="suppress"), args=caught_types
            ):
                broad = any(_names_everything(caught) for caught in caught_types)
            case _:
                continue
        if broad:
            yield f"{module}:{node.lineno}: catches everything; name what is expected"


def _names_everything(caught: ast.expr) -> bool:
    if isinstance(caught, ast.Tuple):
        return any(_names_everything(item) for item in caught.elts)
    return isinstance(caught, ast.Name) and caught.id in ("Exception", "BaseException")


def _impure_calls(module: str, tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in IMPURE_CALLS:
                yield f"{module}:{node.lineno}: a pure layer calls {name}()"
            case ast.Attribute(value=ast.Name(id="datetime" | "date"), attr=reading) if (
                reading in CLOCK_READINGS
            ):
                yield f"{module}:{node.lineno}: a pure layer reads the clock ({reading})"
            case _:
                pass
