"""Makes the reference pages in the folder above: `make golden`, or `python -m docs.generator`.

Each page is made of the program's own data: the settings, the tables of outputs, docs/openapi.yaml, the catalogue of
families, and deploy/operator/crds.yaml. The pages are checked in, and tests/repository/test_reference.py compares them
with those made here.
"""
