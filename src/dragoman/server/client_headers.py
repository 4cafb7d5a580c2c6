"""A client's headers as upstreams take them: text, decoded when somebody asks. Most are never asked for."""

from collections.abc import Iterator, Mapping

__all__ = ("ClientHeaders",)


class ClientHeaders(Mapping[str, str]):
    """Names in lower case. Of a header that came twice the last counts."""

    __slots__ = ("_raw",)

    def __init__(self, raw: Mapping[bytes, bytes]) -> None:
        self._raw = raw

    def __getitem__(self, name: str) -> str:
        return self._raw[name.encode("latin-1")].decode("latin-1")

    def __iter__(self) -> Iterator[str]:
        if not self._raw:
            return iter(())
        return iter(
            b"\n".join(self._raw).decode("latin-1").split("\n")
        )  # HTTP has no name with one

    def __len__(self) -> int:
        return len(self._raw)
