"""The version of this code. That of the installed package may be older, where an editable installation was updated."""

__version__ = "0.2.0"
