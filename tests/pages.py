"""The code of a Markdown page, run as a reader would paste it: block after block, from an empty interpreter.

A ``python`` block with prompts is a doctest. One without is run as a notebook cell is, its last expression shown; an
``output`` block right after it is what it must print, where ``...`` stands for anything. Decimal numbers may differ by
three units of their last digit: machines round differently.
"""

import ast
import contextlib
import doctest
import io
import re
from typing import NamedTuple

FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n?```output\n(.*?)^```)?", flags=re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """Code, what it must print (``None``: whatever it does), and the line of the page it starts at."""

    code: str
    expected: str | None
    line: int


def blocks(page: str) -> list[Block]:
    """The ``python`` blocks of a page, each with the ``output`` block that follows it."""
    return [Block(m.group(1), m.group(2), page[: m.start()].count("\n") + 2) for m in BLOCK.finditer(page)]


def run_page(page: str, name: str) -> dict[str, object]:
    """Run all blocks in one new namespace, and return it."""
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.code.lstrip().startswith(">>>"):
            _run_doctest(block, names, name)
        else:
            _run_cell(block, names, name)
    return names


def _run_doctest(block: Block, names: dict[str, object], name: str) -> None:
    test = doctest.DocTestParser().get_doctest(block.code, names, name, name, block.line - 1)
    runner = doctest.DocTestRunner(_Checker(), optionflags=FLAGS, verbose=False)
    report = io.StringIO()
    runner.run(test, out=report.write, clear_globs=False)
    assert runner.summarize(verbose=False).failed == 0, report.getvalue()
    names.update(test.globs)


def _run_cell(block: Block, names: dict[str, object], name: str) -> None:
    tree = ast.parse(block.code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    ast.increment_lineno(tree, block.line - 1)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, name, "exec"), names)
        if last is not None:
            ast.increment_lineno(last, block.line - 1)
            value = eval(compile(ast.Expression(last.value), name, "eval"), names)
            if value is not None and not block.code.rstrip().endswith(";"):
                print(repr(value))
    if block.expected is not None:
        same = _Checker().check_output(block.expected, printed.getvalue(), FLAGS)
        assert same, f"{name}:{block.line} printed\n{printed.getvalue()}\nwhere the page says\n{block.expected}"


class _Checker(doctest.OutputChecker):
    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return super().check_output(want, got, optionflags) or _agree(want, got)


DECIMAL = re.compile(r"[-−]?\d+\.(\d*)(?:e([-+]\d+))?")


def _agree(expected: str, printed: str) -> bool:
    """Whether the texts are equal but for the last digits of their decimal numbers."""
    texts = [re.sub(r"(?<=\[) | (?=\])", "", " ".join(text.split())) for text in (expected, printed)]
    if len({DECIMAL.sub("#", text) for text in texts}) > 1:
        return False
    pairs = zip(*map(DECIMAL.finditer, texts), strict=True)
    units = ((a, b, 10.0 ** (int(a[2] or 0) - max(len(a[1]), len(b[1]), 1))) for a, b in pairs)
    return all(abs(_number(a) - _number(b)) <= 3.01 * unit for a, b, unit in units)


def _number(match: re.Match[str]) -> float:
    return float(match[0].replace("−", "-"))
