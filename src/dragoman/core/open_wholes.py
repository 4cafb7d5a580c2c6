"""The open parts that hold no text of the model: sound, and parts that are whole when they are announced.

See `open_parts` for the rules of all parts.
"""

from typing import final

from msgspec.structs import replace

from dragoman.core.open_parts import Input, PartBase, Parts
from dragoman.core.surrogates import replace_lone
from dragoman.model.events import MediaDelta, PartEnded
from dragoman.model.parts import Extra, Media, Opaque, Part, PartStatus


@final
class OpenMedia(PartBase):
    """Sound: base64 pieces, a transcript beside them, and fields that come at the end (`expires_at`)."""

    __slots__ = ("_data", "_extra", "_header", "_transcript")

    def __init__(self, parts: Parts, header: Media, choice: int = 0) -> None:
        super().__init__(parts)
        self._header = replace(header, status="in_progress")
        self._data: list[str] = []
        self._transcript: list[str] = []
        self._extra: Extra | None = None  # grows with the fields of each piece
        self.part = parts.start(self._header, choice)

    def add(self, data: str, transcript: str, extra: Extra | None = None) -> None:
        self._move(Input.PIECE)
        data, transcript = replace_lone(data), replace_lone(transcript)
        self._data.append(data)
        self._transcript.append(transcript)
        if extra is not None:
            self._extra = self._extra or Extra(extra.dialect, {})
            self._extra.fields.update(extra.fields)
        if data or transcript or extra is not None:
            self._parts.events.append(MediaDelta(self.part, data, transcript, extra))

    def end(self, status: PartStatus) -> None:
        self._move(Input.END)
        value = replace(
            self._header,
            data="".join(self._data) or None,
            transcript="".join(self._transcript) or None,
            status=status,
            extra=self._extra,
        )
        self._parts.events.append(PartEnded(self.part, value))
        self._data = []
        self._transcript = []


@final
class OpenWhole(PartBase):
    """A part that is whole when it is announced and ends later."""

    __slots__ = ("value",)

    def __init__(self, parts: Parts, value: Part) -> None:
        super().__init__(parts)
        self.value: Part = value
        self.part = parts.start(value)

    def end(self, status: PartStatus, value: Part | None = None) -> None:
        """End the part. `value`: the finished part as decoded from the wire; ignored if its kind differs."""
        self._move(Input.END)
        final: Part = self.value if value is None or type(value) is not type(self.value) else value
        if not isinstance(final, Opaque):
            final = replace(final, status=status)
        self._parts.events.append(PartEnded(self.part, final))
