"""Write a recorded stream in another dialect, piece by piece, as a proxy would.

    python examples/translate_stream.py [FILE SOURCE TARGET]

Without arguments: two calls of a Responses stream for an Anthropic client.
"""

import sys
from pathlib import Path

from dragoman import StreamTranslator

RECORDED = Path(__file__).parent / "recorded.sse"
READ_SIZE = 100  # bytes: a network may cut a stream anywhere


def main() -> None:
    file, source, target = sys.argv[1:] or (str(RECORDED), "responses", "messages")
    translator = StreamTranslator(source, target)
    with Path(file).open("rb") as stream:
        while data := stream.read(READ_SIZE):
            # The translator returns everything that this piece completes; nothing waits for the end of the stream.
            sys.stdout.buffer.write(translator.feed(data))
    sys.stdout.buffer.write(translator.close())
    sys.stdout.flush()

    for problem in translator.problems:
        print(f"frame {problem.frame}: {problem.message}", file=sys.stderr)
    for loss in translator.losses:
        print(f"lost: {loss.code} {loss.detail}", file=sys.stderr)


if __name__ == "__main__":
    main()
