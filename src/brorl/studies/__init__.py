"""Studies: one question a file, asked with ordinary runs and answered by a stated rule.

Every module directly in this package is a study: its docstring is the pre-registration, its
`STUDY` says how the question is asked and judged. `runner` holds what they share.
docs/studies.md tells how to write one.
"""
