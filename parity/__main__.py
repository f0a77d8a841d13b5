"""``python -m parity`` and the command ``parity``."""

import sys

INTERRUPTED = 130


def main() -> None:
    """Runs the command line; an interrupt while it is imported ends it without a traceback."""
    try:
        from parity.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
