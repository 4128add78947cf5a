"""Dashboards and alerts for Prometheus and Grafana, and the script that renders a dashboard to an image."""
