"""podsettle: a mutating admission webhook that settles pods."""

from importlib.metadata import version

__version__ = version("podsettle")
