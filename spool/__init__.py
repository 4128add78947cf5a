"""The ground of Spool: what a job is, what it costs and where it is kept. Knows no model and no web
framework."""

__version__ = "0.1.0"
