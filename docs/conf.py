"""Sphinx's settings. The source folder is that of the project, so that pages link to reports and examples as files."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from stansub import __version__

os.environ["COLUMNS"] = "100"  # of the command line's help
sys.path.insert(0, str(Path(__file__).parent))

project = "stansub"
author = "The stansub developers"
copyright = author
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinxcontrib.mermaid",
    "commands",
]
root_doc = "docs/index"
include_patterns = ["docs/**", "reports/**", "CONTRIBUTING.md", "CHANGELOG.md"]
exclude_patterns = [".*", "build", "dist", "site", "tests", "stansub", "**/*.html"]

html_theme = "furo"
html_title = "stansub"
html_theme_options = {"light_css_variables": {"code-font-size": "0.73rem"}}  # 100 columns fit, as outputs have
html_copy_source = False

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]

autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_use_rtype = False
suppress_warnings = ["ref.python"]  # words in the types of parameters, such as `name`, that are also attributes
