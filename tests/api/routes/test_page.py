"""The page's files: what the first answer names, what is asked again, and what is not there."""

import re

import httpx

MODULE = re.compile(r'<link rel="modulepreload" href="(/page/\w+\.js)">')


def imports_of(text: str) -> set[str]:
    """Of a module: what it imports at once, and what it loads when a view is shown."""
    return {f"/page/{name}" for name in re.findall(r'(?:from |\], |/, )"\./(\w+\.js)"', text)}


def test_the_page_names_every_module_that_it_needs(http: httpx.Client) -> None:
    named = MODULE.findall(http.get("/").text)
    texts = {path: http.get(path).raise_for_status().text for path in named}
    needed = {"/page/app.js"}.union(*(imports_of(text) for text in texts.values()))
    assert len(named) == len(set(named))
    assert set(named) == needed


def test_a_file_is_sent_again_only_once_it_has_changed(http: httpx.Client) -> None:
    first = http.get("/page/style.css")
    assert first.headers["content-type"].startswith("text/css")
    assert first.headers["cache-control"] == "no-cache"
    again = http.get("/page/style.css", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    changed = http.get("/page/style.css", headers={"If-None-Match": '"another"'})
    assert changed.content == first.content
    for path in ("/page/nothing.js", "/page/..%2f..%2fapp.py", "/page/__init__.py"):
        assert http.get(path).status_code == 404, path
