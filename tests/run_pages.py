"""Run the code of the README and of the pages for newcomers as a reader would paste it, with the installed package.

    python tests/run_pages.py            # in the environment to be tried, from anywhere

Each page runs in a new interpreter and an empty directory, in which this repository cannot be imported. Pages that need
a package which is not installed are named and skipped, unless ``--all`` is given.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "docs" / "index.md"]
PAGES += sorted((ROOT / "docs" / "start").glob("*.md")) + sorted((ROOT / "docs" / "how_to").glob("*.md"))

RUN = """
import importlib.util, pathlib, sys
spec = importlib.util.spec_from_file_location("pages", sys.argv[1])
pages = importlib.util.module_from_spec(spec)
sys.modules["pages"] = pages
spec.loader.exec_module(pages)
import kernel_embed
assert not pathlib.Path(kernel_embed.__file__).is_relative_to(sys.argv[3]), "the repository, not the installed package"
pages.run_page(pathlib.Path(sys.argv[2]).read_text(encoding="utf-8"), sys.argv[2])
"""


def run(page: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """The page in an interpreter and a directory of its own."""
    command = [sys.executable, "-I", "-c", RUN, str(ROOT / "tests" / "pages.py"), str(page), str(ROOT)]
    environment = {**os.environ, "MPLBACKEND": "agg"}
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def main() -> int:
    """Run every page, say how each ended, and return how many failed."""
    failed = 0
    for page in PAGES:
        started = time.perf_counter()
        done = run(page)
        missing = "ModuleNotFoundError" in done.stderr and "--all" not in sys.argv
        word = "ok" if done.returncode == 0 else "skipped" if missing else "FAILED"
        print(f"{word:8}{time.perf_counter() - started:6.1f} s  {page.relative_to(ROOT)}", flush=True)
        if word != "ok":
            print(done.stderr.strip().splitlines()[-1] if missing else done.stderr + done.stdout)
        failed += word == "FAILED"
    return failed


if __name__ == "__main__":
    sys.exit(main())
