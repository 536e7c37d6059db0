"""The composition root of the operator: an `OperatorConfig` becomes an `Operator`."""

from collections.abc import Sequence

from exporter.config.operator import OperatorConfig, OperatorSettings
from exporter.operator.api.events import Events
from exporter.operator.api.leader import Leader
from exporter.operator.api.reader import Reader
from exporter.operator.api.watching import Watching
from exporter.operator.api.writer import Writer
from exporter.operator.care import Care
from exporter.operator.care_of_autoscalers import CareOfAutoscalers
from exporter.operator.care_of_exporters import CareOfExporters
from exporter.operator.lasting import Lasting
from exporter.operator.looks import Looks
from exporter.operator.objects.kinds import Key
from exporter.operator.operator import Operator, Parts
from exporter.operator.reconcile import Reconciler
from exporter.operator.work import EVERYTHING, Work

# Lists that come within this long lead to one look at everything.
TOGETHER_SECONDS = 1.0


def make_operator(config: OperatorConfig, lasting: Lasting | None = None) -> Operator:
    """An operator. `lasting` is that of the role until now."""
    lasting = lasting or Lasting()
    kubernetes, operator = config.kubernetes, config.operator
    writer = Writer(
        url=kubernetes.url or "",
        token_file=kubernetes.token_file,
        ca_file=kubernetes.ca_file,
        on_answer=lasting.counted.answered,
    )
    reader = Reader(writer)
    work = Work()
    events = Events(writer, lasting.identity)
    looks = Looks(on_change=lambda owner: work.add(owner) if isinstance(owner, Key) else None)
    lasting.telemetry.bound("operator_exporters", *looks.bounds["operator_exporters"])
    parts = Parts(
        writer=writer,
        besides=(looks,),
        work=work,
        watcher=Watching(
            api=writer,
            namespaces=operator.namespaces,
            on_key=work.add,
            on_list=lambda: work.add_after(EVERYTHING, TOGETHER_SECONDS),
            on_failure=lasting.counted.watch_ended,
        ),
        reconciler=Reconciler(
            writer=writer,
            reader=reader,
            events=events,
            cares=_cares(operator, reader, looks),
            namespaces=operator.namespaces,
            work=work,
            counted=lasting.counted,
        ),
        leader=Leader(
            writer=writer,
            namespace=operator.lease_namespace or "",
            name=operator.lease_name,
            identity=lasting.identity,
            lease_seconds=int(operator.lease_seconds),
        )
        if operator.leader_election == "on"
        else None,
    )
    return Operator(parts=parts, interval_seconds=operator.interval_seconds, lasting=lasting)


def _cares(settings: OperatorSettings, reader: Reader, looks: Looks) -> Sequence[Care]:
    exporters = CareOfExporters(
        reader,
        looks,
        namespaces=settings.namespaces,
        image=settings.exporter_image,
        dcgm_image=settings.dcgm_image,
    )
    return (exporters, CareOfAutoscalers(reader))
