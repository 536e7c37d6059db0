"""Makes the dashboards in the folder above: `make golden`, or `python -m deploy.grafana.generator`.

A dashboard is data: variables, rows of panels, and PromQL. panels.py, tables.py and dashboard.py add everything else
that Grafana's JSON needs. The dashboards are checked in, and a test compares them with those made here.
"""
