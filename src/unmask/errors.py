"""The one exception a user is meant to read: a sentence that says what is wrong and what to do."""


class UnmaskError(Exception):
    """Input or surroundings do not allow what was asked; the command line prints it and exits with 2."""
