"""How the documentation is built: `make docs`, warnings are errors."""

project = "seep"
author = "the seep contributors"
copyright = "the seep contributors, Apache-2.0"
version = release = "0.1.0"

extensions = ["myst_parser"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "seep"
