"""File descriptors: each connection takes one, and many systems begin with a limit of 1024."""

import resource


def allow_descriptors(num_needed: int) -> None:
    """Raise this process's own limit to what is needed, as far as the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = num_needed if hard == resource.RLIM_INFINITY else min(num_needed, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
