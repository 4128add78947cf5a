"""Whether what a browser shows can be used by everyone, and fits."""

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page


def find_faults(page: Page, view: str) -> list[str]:
    """What axe finds, and whether the view is wider than the screen."""
    found = []
    for violation in Axe().run(page).response["violations"]:
        nodes = [node["html"] for node in violation["nodes"][:3]]
        found.append(f"{view}: {violation['id']}: {nodes}")
    if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
        found.append(f"{view}: wider than the screen")
    return found
