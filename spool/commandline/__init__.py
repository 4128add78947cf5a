"""What both commands share: flags from declarations, help in two lengths, and errors as sentences.

Import its modules: `--help` needs `app` only, and must not wait for the options of jobs.
"""
