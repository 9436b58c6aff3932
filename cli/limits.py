"""Limits of the system that stand in the way of many connections."""

import resource

# A worker's slots each hold a connection to a model; an API process holds its readers'.
WANTED_FILES = 65_536


def raise_file_limit() -> None:
    """Raise the number of open files for this process and those it starts, as far as allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_FILES if hard == resource.RLIM_INFINITY else min(WANTED_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
