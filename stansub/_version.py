"""Version of the installed package."""

from importlib import metadata

try:
    __version__ = metadata.version("stansub")
except metadata.PackageNotFoundError:  # in a source tree
    __version__ = "0+unknown"
