"""Every error says what it means."""

from spool.errors import describe_code, job_codes


def test_every_code_of_a_job_says_what_it_means() -> None:
    for code in job_codes():
        assert describe_code(code) != code or code == "internal", code
