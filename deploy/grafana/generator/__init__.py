"""Makes the dashboards in the folder above: `make dashboards`, or `python -m deploy.grafana.generator`.

A dashboard is data: variables, rows of panels, and PromQL. What Grafana's JSON wants besides is added in one place
(panels.py, tables.py, dashboard.py). The result is checked in, and a test holds it to what is made here.
"""
