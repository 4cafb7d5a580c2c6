"""Rate limits inside a stream, as the ChatGPT Codex backend does: `codex.rate_limits`.

    {"type": "codex.rate_limits", "plan_type": "plus", "metered_limit_name": "codex",
     "rate_limits": {"primary": {"used_percent": 42.5, "window_minutes": 300, "reset_at": 1700000000}, "secondary": …},
     "credits": {"has_credits": true, "unlimited": false, "balance": "5.39"}}

Windows are named as the headers of the same backend name them; those of other limits than the usual one carry its name.
"""

from dragoman.core.fields import Fields, read_bool, read_float, read_int, read_object, read_text
from dragoman.model.outcome import Limits, LimitWindow

LIMITS_EVENT = "codex.rate_limits"
_USUAL = "codex"


def read_limits(fields: Fields) -> Limits | None:
    """None if the event says nothing."""
    family = (
        read_text(fields.get("metered_limit_name")) or read_text(fields.get("limit_name")) or _USUAL
    )
    family = family.strip().lower().replace("-", "_")
    prefix = "" if family == _USUAL else f"{family}/"
    reported = read_object(fields.get("rate_limits"))
    windows = tuple(
        LimitWindow(
            name=prefix + name,
            used_percent=used,
            window_minutes=read_int(window.get("window_minutes")),
            resets_at=read_int(window.get("reset_at")),
        )
        for name in ("primary", "secondary")
        if (window := read_object(reported.get(name)))
        and (used := read_float(window.get("used_percent"))) is not None
    )
    credit = read_object(fields.get("credits"))
    if not windows and not credit:
        return None
    return Limits(
        windows=windows,
        has_credits=read_bool(credit.get("has_credits")),
        unlimited=read_bool(credit.get("unlimited")),
        balance=read_text(credit.get("balance")),
    )
