"""Output of any length in bounded memory: its beginning and its end."""

from collections import deque

__all__ = ("BoundedOutput",)


class BoundedOutput:
    """Keeps the first and the last bytes of what it is given."""

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._head: list[bytes] = []
        self._head_left = self._half
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self.size = 0

    def add(self, data: bytes) -> None:
        self.size += len(data)
        if self._head_left:
            taken = data[: self._head_left]
            self._head.append(taken)
            self._head_left -= len(taken)
            data = data[len(taken) :]
        if data:
            self._tail.append(data)
            self._tail_size += len(data)
            while self._tail_size - len(self._tail[0]) >= self._half:
                self._tail_size -= len(self._tail.popleft())

    def text(self) -> str:
        """All of it, or both ends with a word on what is missing between them."""
        head = b"".join(self._head)
        tail = b"".join(self._tail)[-self._half :]
        missing = self.size - len(head) - len(tail)
        if not missing:
            return (head + tail).decode("utf-8", "replace")
        first, last = head.decode("utf-8", "replace"), tail.decode("utf-8", "replace")
        return f"{first}\n… {missing:,} bytes left out …\n{last}"
