"""`healthcheck`: an exit code for Docker's HEALTHCHECK.

Tests: tests/web/test_protection.py.
"""

import http.client
import ssl
from typing import Any

from exporter.cli.commands import Help, command
from exporter.cli.options import setting_options, web_of
from exporter.config.named_files import read_web_file
from exporter.errors import ExporterError

TIMEOUT_SECONDS = 3.0


_HELP = Help(
    says="Ask the exporter that runs with the same settings whether it works.",
    groups={
        "Where it answers": {
            "--web.listen-address": "The exporter's own flag",
            "--web.config.file": "The exporter's own flag",
            "--config.file": "The exporter's own file",
        },
    },
    examples=(
        "healthcheck",
        "healthcheck --web.listen-address :9410",
        "healthcheck --config.file /etc/gpu-metrics.yaml",
    ),
    more="Exit code 0, or 1 and a line. Every flag of serve is taken.",
)


@command(_HELP)
@setting_options()
def healthcheck(**given: Any) -> None:  # noqa: ANN401 - see serve
    """Ask the exporter that runs with the same settings whether it works: exit code 0, or 1 and a line.

    It takes every flag of `serve`, so that it can be given the same ones. Those of the web decide where it asks.
    """
    settings = web_of(given)
    address = settings.listen_addresses[0]
    tls = read_web_file(settings).tls
    host = address.host or "localhost"
    port = address.port
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
    if tls:
        # the connection is to this machine, so the certificate's name and signer do not matter
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection = http.client.HTTPSConnection(host, port, timeout=TIMEOUT_SECONDS, context=context)
    try:
        connection.request("GET", "/-/healthy")
        status = connection.getresponse().status
    except (ssl.SSLError, ConnectionResetError, BrokenPipeError) as error:
        # This command has no client certificate. An exporter that hangs up for this reason works.
        if not tls or tls.client_certificate != "required":
            raise ExporterError(f"{address} does not answer: {error}") from error
        return
    except (OSError, http.client.HTTPException) as error:
        raise ExporterError(f"{address} does not answer: {error or type(error).__name__}") from error
    finally:
        connection.close()
    if status != http.HTTPStatus.OK:
        raise ExporterError(f"{address} answers with HTTP status {status}")
