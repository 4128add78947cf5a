"""Monitoring: Prometheus rules, dashboards, alerts."""
