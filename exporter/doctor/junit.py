"""The evidence for Kubernetes' AI conformance as a JUnit file, which CI systems show as tests. Pure.

It has only elements and attributes that Jenkins' xUnit plugin, the strictest reader, accepts (its junit-10.xsd).
"""

from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from exporter.doctor.as_tested import QuestionOfTest
from exporter.doctor.conformance import JudgedRequirement
from exporter.outputs.diagnosis import Level
from exporter.wording import escaped

_SUITE = "pod-gpu-metrics-exporter doctor --conformance"


def as_junit(judged: Sequence[JudgedRequirement], *, where: str, version: str, moment: str) -> bytes:
    """A JUnit file in UTF-8, with a case for each requirement, and for each question of an automated test about it.

    A requirement that cannot be judged counts as skipped, and so does a question whose answer the test only logs.
    `moment` is in ISO 8601, in UTC.
    """
    root = Element("testsuites", name=_SUITE)
    suite = SubElement(root, "testsuite", name=_SUITE, timestamp=moment)
    properties = SubElement(suite, "properties")
    for name, value in (("exporter", where), ("version", version)):
        SubElement(properties, "property", name=name, value=escaped(value))
    for requirement in judged:
        _add_requirement(suite, requirement)
        for question in requirement.asked:
            _add_question(suite, requirement, question)
    _count(root, suite)
    indent(root)
    body: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return body + b"\n"


def _add_requirement(suite: Element, judged: JudgedRequirement) -> None:
    case = _case(suite, judged.category, judged.id)
    if not judged.status:
        SubElement(case, "skipped", message=escaped(judged.why))
    elif judged.finding.level is Level.OK:
        SubElement(case, "system-out").text = escaped(judged.why)
    else:
        _fail(case, judged.status, judged.why, judged.remedy)


def _add_question(suite: Element, judged: JudgedRequirement, question: QuestionOfTest) -> None:
    case = _case(suite, judged.category, f"{judged.id}/{question.quantity} as tested")
    if question.is_passed:
        SubElement(case, "system-out").text = ", ".join(f"{name}: {n}" for name, n in question.families.items())
    elif question.is_required:
        remedy = f"give the test {question.flag}" if question.flag else "no flag of the test finds another"
        _fail(case, "Not found", question.why_not, remedy)
    else:
        SubElement(case, "skipped", message=f"{question.why_not}; the test only logs that")


def _case(suite: Element, category: str, name: str) -> Element:
    return SubElement(suite, "testcase", classname=category, name=name, time="0.000")


def _fail(case: Element, kind: str, why: str, remedy: str) -> None:
    # no reader accepts a control character, since XML cannot write most of them
    SubElement(case, "failure", type=kind, message=escaped(why)).text = escaped(remedy)


def _count(root: Element, suite: Element) -> None:
    """Write the numbers of all cases, and of those that failed or were skipped."""
    counts = {
        "tests": len(suite.findall("testcase")),
        "failures": len(suite.findall("testcase/failure")),
        "errors": 0,
    }
    for name, n in counts.items():
        root.set(name, str(n))
        suite.set(name, str(n))
    suite.set("skipped", str(len(suite.findall("testcase/skipped"))))
