"""The tree of errors names them all."""

from spool import errors
from spool.errors import SpoolError, describe_code, job_codes


def test_the_tree_has_every_error_of_its_module() -> None:
    kinds = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, SpoolError) and kind is not SpoolError
    ]
    assert len(kinds) > 30
    missing = [kind.__name__ for kind in kinds if f" {kind.__name__}" not in (errors.__doc__ or "")]
    assert missing == []


def test_every_code_of_a_job_says_what_it_means() -> None:
    for code in job_codes():
        assert describe_code(code) != code or code == "internal", code
