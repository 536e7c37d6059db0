"""What is known of who holds which device, kept over a reload.

Tests: tests/node/test_sources.py.
"""

from collections.abc import Hashable

from exporter.dividing.sharing import CounterBook
from exporter.model.device_ref import DeviceRef
from exporter.model.devices import Assignment
from exporter.ownership.current import CurrentOwners
from exporter.ownership.owners import ADMIN_ACCESS, Knowledge, read_assignment
from exporter.sources.kubelet.assignments import KeptAssignments


class KeptOwners:
    """The owners of the present node, and the assignments in force, for as long as they come from the same kubelet."""

    def __init__(self) -> None:
        self.owners: CurrentOwners | None = None
        self._sharing = ""
        self._assignments = KeptAssignments(read=self._refers_to)
        self._asked_for: Hashable = None

    def book(self, sharing: str) -> CounterBook | None:
        """The values of divided counters; None if they were divided in another way, or not at all."""
        return self.owners.book if self.owners and sharing == self._sharing else None

    def assignments(self, asked_for: Hashable) -> KeptAssignments:
        """The assignments in force, if they come from the same kubelet with the same settings; else none."""
        return self._assignments if asked_for == self._asked_for else KeptAssignments(read=self._refers_to)

    def take(self, owners: CurrentOwners, sharing: str, assignments: KeptAssignments, asked_for: Hashable) -> None:
        """Keep those of the new node, which is complete."""
        self.owners = owners
        self._sharing = sharing
        self._assignments = assignments
        self._asked_for = asked_for

    def _refers_to(self, assignment: Assignment) -> DeviceRef | None:
        """The device that an assignment refers to, by the present node's rules and devices.

        A claim takes nobody's device as long as it is not known whether it has admin access.
        """
        knowledge = self.owners.knowledge if self.owners else Knowledge()
        if assignment.claim is not None and knowledge.claims.is_to_be_asked(assignment.claim):
            return DeviceRef(form=ADMIN_ACCESS, is_look=True)
        return read_assignment(assignment, knowledge)
