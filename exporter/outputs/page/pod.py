"""The page's view of a pod: its labels, its accounts, and the commands that say more.

Tests: tests/outputs/test_page.py.
"""

from collections.abc import Mapping, Sequence
from html import escape

from exporter.accounts.amounts import AMOUNTS
from exporter.model.accounts import Accounts
from exporter.model.device_row import DeviceRow
from exporter.outputs.page.document import table, text
from exporter.outputs.page.view import PageView


def of_pod(rows: Sequence[DeviceRow], pod: str) -> Sequence[DeviceRow]:
    """The rows of a pod (namespace/name)."""
    return [row for row in rows if row.pod_name == pod]


def pod_section(rows: Sequence[DeviceRow], view: PageView) -> str:
    """The facts about the pod beside its devices, and the commands that say more."""
    first = rows[0] if rows else DeviceRow()
    facts: Mapping[str, object] = {
        "Node": ", ".join(dict.fromkeys(row.node_name for row in rows)),
        "Workload": f"{first.workload_kind} {first.workload_name}".strip(),
        "Containers": ", ".join(dict.fromkeys(row.container for row in rows)),
        "UID": first.pod_uid,
        **{f"Label {name}": value for name, value in first.pod_labels.items()},
    }
    items = "".join(f"<dt>{text(title)}</dt><dd>{text(fact)}</dd>" for title, fact in facts.items() if fact)
    namespace, _, name = view.pod.partition("/")
    commands = (f"kubectl gpu why {name} -n {namespace}", f"kubectl describe pod {name} -n {namespace}")
    more = "".join(f"<dd><code>{text(command)}</code></dd>" for command in commands)
    back = f'<p><a id="back" href="{escape(view.address(pod=""))}">← all GPUs</a></p>'
    nothing = "" if rows else "<p>The pod holds no GPU now.</p>"
    return f'{back}{nothing}<dl id="pod">{items}<dt>To see more</dt>{more}</dl>'


def pod_accounts(pod: str, accounts: Accounts | None) -> str:
    """The table of the pod's accounts. `accounts` are the node's accounts; None if they are not at hand."""
    if accounts is None:
        return '<p class="none">Its GPU time and energy are in the pod_gpu_… counters of its node\'s exporter.</p>'
    families = [family for amount in AMOUNTS for family in amount.families if not family.labels]
    rows: list[tuple[str, str, str]] = []
    for account in accounts.rows:
        if account.owner is None or "/".join(account.owner.pod_key) != pod:
            continue
        device = text(account.device.uuid)
        if account.device.instance:
            device += f", instance {text(account.device.instance)}"
        for family in families:
            amount = account.amounts.get(family.amount, 0) / 10**family.power
            if amount:
                rows.append((device, text(family.name), f"{amount:.1f}"))
    if not rows:
        return ""
    caption = "Its GPU time and energy, by its counters on /metrics"
    return table("accounts", caption, ("Device", "Counter", "Amount"), rows)
