"""What the page's tests need: a Chromium. Where none is found they are left out, and the run says so.

With CI set nothing is left out: a browser that is missing there is a failure.
"""

import os
import shutil

BROWSER = next(
    (
        found
        for name in ("chromium", "chromium-browser", "google-chrome")
        if (found := shutil.which(name)) is not None
    ),
    None,
)

left_out: list[str] = []
if not os.environ.get("CI") and BROWSER is None:
    left_out.append("test_page.py")
