"""`python -m stansub.cli`."""

from stansub.cli import main

main()
