"""Finds the running gateway and the model that fits a client, for `connect` and `launch`."""

import os
from collections.abc import Sequence

from msgspec import structs

from dragoman.config.environment import http_address
from dragoman.config.secrets import mask_url
from dragoman.config.settings import Settings
from dragoman.errors import ConfigError
from dragoman.gateway.route import Router, default_models
from dragoman.inspection.terminal_text import visible_line
from dragoman.server.connect import KEY_VARIABLE, GatewayAccess, access_of, fitting_model
from dragoman.server.running import RunningGateway, find_owners
from dragoman.upstream.http.model_list import OfferedModel

# A name that is in no list: the gateway then says which upstream gets unknown names.
_ANY_NAME = "any-other-model"
_MOST_SHOWN = 20


def check_url(url: str) -> str:
    """The address of a gateway, without `/v1` and without a slash at the end.

    Raises:
        ConfigError: it is no address, or has a user and a password.
    """
    parts = http_address(url)
    if parts is None or parts.query or parts.fragment:
        raise ConfigError(
            f"--url: expected an address such as http://127.0.0.1:8787, got {mask_url(url)!r}"
        )
    if "@" in parts.netloc:
        raise ConfigError(
            f"--url: expected an address without user and password, got {mask_url(url)!r}; "
            f"a key goes into {KEY_VARIABLE}"
        )
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


def key_for(settings: Settings) -> str | None:
    """The key for a gateway with these settings; None if it needs none."""
    return os.environ.get(KEY_VARIABLE) or next(iter(settings.server.api_keys), None)


def access_to(running: RunningGateway, settings: Settings, model: str | None) -> GatewayAccess:
    """How to reach a gateway that runs. `settings`: its own, or the defaults if they are not known."""
    access = access_of(settings, running.url, model)
    return structs.replace(access, key="gateway") if running.needs_key else access


def models_at(
    running: RunningGateway, key: str | None, settings: Settings | None
) -> tuple[tuple[OfferedModel, ...], bool]:
    """The models of a gateway that runs, and whether it has these settings.

    It may have been started with others (`dragoman serve --upstream …`), so it is asked where it sends each model.
    """
    listed = running.models or ()
    if settings is None:
        return listed, False
    names = default_models(settings)
    router = Router(settings)
    owners = find_owners(running.url, key, (*names, _ANY_NAME))
    for name, owner in owners.items():
        candidate = router.first(name)
        if owner != (None if candidate is None else candidate.upstream):
            return listed, False
    known = {name: OfferedModel(name) for name in names} | {each.name: each for each in listed}
    return tuple(known.values()), True


def choose_model(
    client: str,
    known: Sequence[OfferedModel],
    offered: Sequence[OfferedModel],
    *,
    problems: Sequence[str] = (),
    how: str,
) -> str:
    """The model for a client of `server.connect.CLIENTS`: the one with a known name that fits, otherwise the only one that the
    upstreams offer.

    Raises:
        ConfigError: there is none, or the choice is the user's. how: the option that names a model.
    """
    found = fitting_model(client, [each.name for each in known])
    if found is not None:
        return found
    if len(offered) == 1:
        return offered[0].name
    if offered:
        names = ", ".join(visible_line(each.name) for each in offered[:_MOST_SHOWN])
        more = f" and {len(offered) - _MOST_SHOWN} more" if len(offered) > _MOST_SHOWN else ""
        raise ConfigError(f"expected {how}: the upstream has several models: {names}{more}")
    reasons = "\n".join(problems)
    raise ConfigError(
        "\n".join(filter(None, (reasons, f"expected {how}: no model of the upstream is known")))
    )
