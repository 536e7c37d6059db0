"""`healthcheck`: an exit code for Docker's HEALTHCHECK."""

import http.client
from typing import Any

import click

from exporter.cli.options import read_config, setting_options
from exporter.errors import ExporterError

TIMEOUT_SECONDS = 3.0


@click.command()
@setting_options()
def healthcheck(**given: Any) -> None:  # noqa: ANN401 - see serve
    """Ask the exporter that runs with the same settings whether it works: exit code 0, or 1 and a line."""
    address = read_config(given).listen_addresses[0]
    connection = http.client.HTTPConnection(address.host or "localhost", address.port, timeout=TIMEOUT_SECONDS)
    try:
        connection.request("GET", "/-/healthy")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        raise ExporterError(f"{address} does not answer: {error or type(error).__name__}") from error
    finally:
        connection.close()
    if status != http.HTTPStatus.OK:
        raise ExporterError(f"{address} answers with HTTP status {status}")
