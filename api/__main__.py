"""`python -m api` is `spool serve`."""

import sys

from api.cli.main import main

if __name__ == "__main__":
    main(["serve", *sys.argv[1:]])
