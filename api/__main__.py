"""`python -m api` is `spool serve`."""

import sys

from api.cli.main import main
from spool.loading import begin_loading

if __name__ == "__main__":
    begin_loading()
    main(["serve", *sys.argv[1:]])
