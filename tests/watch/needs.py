"""What the tests of the alerts need: `promtool`. Without it they are left out, and the run says so.

With CI set nothing is left out: a tool that is missing there is a failure.
"""

import os
import shutil

PROMTOOL = shutil.which("promtool")

left_out: list[str] = []
if not os.environ.get("CI") and PROMTOOL is None:
    left_out.append("test_rules.py")
