"""What the tests of the alerts need: `promtool` and Alertmanager. They are left out without, as the run says.

With CI set nothing is left out: a tool that is missing there is a failure.
"""

import os
import shutil

PROMTOOL = shutil.which("promtool")
ALERTMANAGER = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")

left_out: list[str] = []
if not os.environ.get("CI") and PROMTOOL is None:
    left_out.append("test_rules.py")
if not os.environ.get("CI") and ALERTMANAGER is None:
    left_out.append("test_told.py")
