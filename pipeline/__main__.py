"""``python -m pipeline``, and the command ``hogboost`` of an installation."""

import sys


def main() -> None:
    """Run the command line. An interrupt while it is still being imported is one line, too."""
    try:
        from pipeline import cli
    except KeyboardInterrupt:
        print("pipeline: interrupted", file=sys.stderr)
        sys.exit(130)
    cli.main()


if __name__ == "__main__":
    main()
