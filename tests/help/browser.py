"""Chromium without a window, for what a page shows after its scripts have run."""

import shutil
import subprocess

import pytest

PROGRAM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
needs_browser = pytest.mark.skipif(not PROGRAM, reason="needs Chromium: apt-get install chromium")
NO_SCRIPTS = """<meta http-equiv="Content-Security-Policy" content="script-src 'none'">"""


def shown(folder, page, *actions, scripts=True):
    """Return the page as Chromium has it in the end.

    Args:
        folder: a folder for its files.
        page: HTML.
        actions: JavaScript that runs after the page's own, such as a move of the slider.
        scripts: False to have Chromium run no script of the page.
    """
    steps = "".join(f"<script type='module'>{action}</script>" for action in actions)
    file = folder / "page.html"
    file.write_text(
        f"<!doctype html><meta charset='utf-8'>{'' if scripts else NO_SCRIPTS}{page}{steps}",
        encoding="utf-8",
    )
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={folder / 'profile'}",
    ]
    command = [PROGRAM, *options, "--virtual-time-budget=5000", "--dump-dom", file.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
