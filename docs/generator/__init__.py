"""Makes the reference pages in the folder above: `make reference`, or `python -m docs.generator`.

Each is made of what the program itself is made of: the settings, the tables of outputs, docs/openapi.yaml, the
catalogue of families and deploy/operator/crds.yaml. The result is checked in, and tests/repository/test_reference.py
holds it to what is made here.
"""
