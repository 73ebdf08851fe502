"""Sphinx configuration. Neither building nor viewing the pages needs a network."""

from __future__ import annotations

import importlib.metadata
import pathlib
import sys

from docutils import nodes
from numpy.typing import ArrayLike
from sphinx.pycode import ModuleAnalyzer
from sphinx.util.typing import stringify_annotation

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE / "_extensions"), str(HERE.parent)]

from gallery import write_gallery  # noqa: E402 — it is beside this file, which the line above makes known
from reference import write_pages  # noqa: E402

project = "kernel_embed"
author = "the authors of kernel_embed"
copyright = author
try:
    release = importlib.metadata.version("kernel-embed")
except importlib.metadata.PackageNotFoundError:
    import kernel_embed

    release = kernel_embed.__version__
version = release

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "myst_nb",
    "mathml",
    "code_line",
    "check_names",
    "reference",
    "libraries",
]
exclude_patterns = ["_build", "tutorials/gallery.md", "_extensions", "jupyter_execute", "**.ipynb_checkpoints"]

# Pages
html_theme = "furo"
html_title = "kernel_embed"
html_static_path = ["_static"]
html_css_files = ["kernel_embed.css"]
html_show_sphinx = False
html_show_copyright = False
html_math_renderer = "mathml"  # MathML written at build time: no script, no font, no network
pygments_style = "friendly"
pygments_dark_style = "monokai"
toc_object_entries_show_parents = "hide"

# Text and notebooks
myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # tutorials are committed with their outputs; the tests run them
nb_ipywidgets_js = {}
nb_merge_streams = True

# ColumnEncoder
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_preserve_defaults = True
strip_signature_backslash = True  # Napoleon then keeps the underscore that ends a learned attribute
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
viewcode_line_numbers = True

# With `sphinx-build -n` every reference into this package must resolve. Names of other libraries lead to their pages by
# rule (`libraries`) or stay text, and type aliases have no page of their own.
nitpick_ignore_regex = [
    (
        r"py:.*",
        r"(torch|gpytorch|linear_operator|numpy|scipy|sklearn|collections|contextlib|pathlib|typing|matplotlib|pandas)\..*",
    ),
    (r"py:.*", r"(np|nn|os|pyro|tqdm)\..*"),
    (r"py:.*", r"kernel_embed\..*_co(ntra)?"),  # variables of types
    (r"py:.*", r"kernel_embed\.objectives\.base\.(B|Embedding|(Target|Sample)Embedding)"),  # protocols
    (r"py:.*", r"(Tensor|Kernel|Prior|Interval|Axes|ArrayLike|NDArray|Callable|Any|Literal|optional|default.*)"),
    (r"py:.*", r"(Vector|Form|Below|Entropy|Profile|NoiseKind|KernelLike|Array|Group)"),
    (r"py:.*", r"((Gram|Feature|Supremum|Terms|Smoothing|Profile)Rule|Spectrum|NamedForm)"),
    (r"py:.*", r"kernel_embed\.kernels\.(structure\.T|parameters\.M)"),
    (r"py:.*", r"kernel_embed\.linalg\.units\.Units|Units"),  # made from the labels of groups
    (r"py:.*", r"kernel_embed\.learning\.loss\.ProcessGroup"),  # a protocol, for shards
    (r"py:.*", r"Measure|Comparison|PlainProfile"),  # documented where they are used
    (r"py:.*", r"kernel_embed\.hypothesis\.(transform_test\.Diagnosis|differences\.ColumnDifference)"),
    (r"py:.*", r"kernel_embed\.voting\.(problem\.Votes|families\.KernelFamily|path\.PathPoint)"),
    (r"py:.*", r"HeldOut|Importances"),  # rows of early stopping, and a protocol for plots
    (
        r"py:.*",
        r"Callback|kernel_embed\.learning\.result\.(StopSearch|Evaluation)|Evaluation",
    ),  # an alias, and what only ``fit`` catches
    (
        r"py:.*",
        r"(Categorical|Null|Method|Initial|Points|Kernels|Stream|Block|Data|RandomState|Theorem|KernelChoice|Conformal)",
    ),
    (
        r"py:.*",
        r"typing_extensions\..*|kernel_embed\.posteriors\.sample\.Settings",
    ),  # keywords, listed with the function
    (r"py:.*", r"kernel_embed\.estimators\.candidates\.Candidate"),  # named in the pool
    (r"py:.*", r"(kernel_embed\.lab\.compare\.ranking\.)?(Row|Recommendation)|kernel_embed\.lab\.runner\.Case"),
    (
        r"py:.*",
        r"(kernel_embed\.posteriors\..*)?(\w+Choice|EntropyParts|FunctionPosterior|GaussianMixture|Checkpoint)",
    ),
    (r"py:.*", r"kernel_embed\.tabular\.column_encoders\.E"),
    (r"py:.*", r"kernel_embed\.voting\.descent\.Descent"),  # what a stream of functions gives
    (r"py:.*", r"(Loss|B|ParameterVector|Search|E_co)"),  # inside a problem and a posterior
    (r"py:.*", r"(LinearSystem|Figure|AnyObjective|RankShards|kernel_embed\.voting\.complexity\.Complexities)"),
    (
        r"py:.*",  # what public functions return, with the methods of classes that have a page
        r"(kernel_embed\.[\w.]+\.)?(Expansion|FeaturePredictor|JointEmbedding|Representation|RegularizedEmbedding|"
        r"ShardedMulticlass|SquaredDistancePosterior)",
    ),
    (r"py:.*", r"(clipped_cross_entropy|ridge|gram|value_and_gradient|Corner)"),  # short names in docstrings
]


def _bring_tutorials() -> None:
    """Copy the notebooks next to the pages, draw their index from them, and write the pages of the reference.

    Sphinx reads one tree only, and `docs/.gitignore` hides the copies.
    """
    target = HERE / "tutorials"
    for stale in target.glob("*.ipynb"):
        stale.unlink()
    notebooks = sorted((HERE.parent / "tutorials").glob("[0-9]*.ipynb"))
    for notebook in notebooks:
        # in the repository the pages are one folder further away
        text = notebook.read_text(encoding="utf-8").replace("](../docs/", "](../")
        (target / notebook.name).write_text(text, encoding="utf-8")
    write_gallery(notebooks, target)
    write_pages(HERE, notebooks)


_bring_tutorials()


def _escape_bars(app, what, name, obj, options, lines) -> None:
    """`log |A|` in a docstring is a determinant, where reStructuredText would see a substitution."""
    if what != "module":
        lines[:] = [line.replace("|A|", r"\|A\|") for line in lines]


def _trim_code(app, doctree) -> None:
    """Drop the empty line that ends a doctest in Markdown, where the closing fence would pass for output."""
    for block in doctree.findall(nodes.literal_block):
        text = block.astext()
        if text.startswith(">>>") and text != text.rstrip():
            block[:] = [nodes.Text(text.rstrip())]
            block.rawsource = text.rstrip()


def _keep_errors_with_values(app, doctree) -> None:
    """Keep ``0.303 ± 0.011`` on one line of a table."""
    for cell in doctree.findall(nodes.entry):
        for text in list(cell.findall(nodes.Text)):
            if " ± " in text:
                text.parent.replace(text, nodes.Text(text.replace(" ± ", "\u00a0±\u00a0")))


def _forget_overloads(*modules: str) -> None:
    """Overloads are for type checkers; readers get the one signature behind them, with its defaults."""
    for name in modules:
        analyzer = ModuleAnalyzer.for_module(name)
        analyzer.analyze()
        analyzer.overloads.clear()


ARRAY_LIKES = [stringify_annotation(kind, "smart").removeprefix("str | ") for kind in (ArrayLike, str | ArrayLike)]


def _name_arrays(app, domain, kind, content) -> None:
    """Write ``ArrayLike`` where Sphinx has put in the seven types that NumPy means by it."""
    for hints in app.env.current_document.autodoc_annotations.values():
        for types in ARRAY_LIKES:
            hints.update({name: hint.replace(types, "ArrayLike") for name, hint in hints.items()})


def setup(app) -> None:
    """Hooks of this configuration."""
    _forget_overloads("kernel_embed.posteriors.sample")
    _forget_overloads("kernel_embed.posteriors.archive")
    app.connect("doctree-read", _trim_code)
    app.connect("doctree-read", _keep_errors_with_values)
    app.connect("autodoc-process-docstring", _escape_bars)
    app.connect("object-description-transform", _name_arrays, priority=400)  # before types are added to descriptions
