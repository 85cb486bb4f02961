"""The command line as `python -m stansub`."""

from stansub.cli import main

if __name__ == "__main__":
    main()
