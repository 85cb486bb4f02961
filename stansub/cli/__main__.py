"""`python -m stansub.cli`."""

from stansub.cli.main import main

main()
