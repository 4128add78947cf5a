"""How Spool is run and measured: images, dashboards, benchmarks, fuzzing, training. No product code."""
