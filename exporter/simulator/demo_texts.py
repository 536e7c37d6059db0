"""What the demo says on standard error when it has begun: addresses to open, and commands to type.

Tests: tests/end_to_end/test_printed_by_demo.py.
"""

import sys
from collections.abc import Iterable, Mapping

from exporter.cli.commands import this_program
from exporter.config.parsers import Address
from exporter.simulator.parts import GPU_RESOURCE

_EVENTS = """  curl -s localhost:{port}/events                            # errors, suspicions, and who had the GPU then
"""


def say_what_to_open(addresses: Iterable[Address], *, has_events: bool = True) -> None:
    """Print the page's address and the first commands to try, on standard error."""
    port = next(iter(addresses)).port
    events = _EVENTS.format(port=port) if has_events else ""
    sys.stderr.write(
        f"""
A simulated GPU node is running; pods come and go. Open

  http://localhost:{port}/

or, in another terminal,

  {this_program()} top --url http://localhost:{port}
  curl -s localhost:{port}/gpu/metrics | grep -i gpu_temp    # GPU metrics with their pods, as Prometheus gets them
  curl -s localhost:{port}/container/metrics                 # the same by container, as JSON
{events}
Ctrl-C ends it.

"""
    )


def say_what_to_open_of_nodes(
    urls: Mapping[str, str], services: Mapping[tuple[str, str], str], addresses: Iterable[Address]
) -> None:
    """Print the addresses of the cluster role and of each exporter in `urls`, on standard error."""
    port = next(iter(addresses)).port
    exporters = "\n".join(f"  {url}/    {name}" for name, url in urls.items())
    questions = "\n".join(_questions(f"localhost:{port}", services))
    sys.stderr.write(
        f"""
{len(urls)} simulated GPU nodes are running, each with an exporter of its own, and the cluster role in front of them.
Open

  http://localhost:{port}/

or, in another terminal,

  {this_program()} top --url http://localhost:{port}
{questions}

The exporters of the nodes:

{exporters}

Ctrl-C ends it.

"""
    )


def _questions(place: str, services: Mapping[tuple[str, str], str]) -> Iterable[str]:
    """Commands that ask the cluster role about a service. `services` has the resource of each service's replicas."""
    # dcgm-exporter does not tell the utilization of a share or a MIG instance
    whole = [service for service, resource in services.items() if resource == GPU_RESOURCE]
    for namespace, name in (whole or [*services])[:1]:
        yield f"  curl -s '{place}/container/metrics?workload={name}'      # containers of all nodes, as JSON"
        if whole:
            question = f"{place}/autoscale/{namespace}/{name}/gpu_utilization"
            yield f"  curl -s {question}    # one number for an autoscaler"
