"""pytest in a process of its own: maps which test reaches which line, then runs those tests for each change in a fork.

A change inside of functions needs no new import: the functions get other code. For any other change a fork imports the
program and its tests anew, from the changed file.
"""

import gc
import importlib.machinery
import json
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from types import CodeType, FunctionType
from typing import Any

import coverage
import pytest
from hypothesis import Phase, is_hypothesis_test, settings

from tests.mutants.changes import ROOT, Change, lines_that_reach
from tests.mutants.pool import ENDED, in_forks

# a changed test may take TIMES the CPU that it takes unchanged, while coverage is measured, and SECONDS more
TIMES, SECONDS = 3, 20
# pytest warns that it cannot rewrite the assertions of hypothesis, which the caller has imported: it need not
OPTIONS = ("-q", "-s", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning")
FEW_FILES = 3  # most of what fails, fails in the files with the most tests that reach a change
SURVIVED = ""
AFRESH = "afresh"
_CACHED = type(cache(len))  # of functions with lru_cache, too


@dataclass(frozen=True)
class Reached:
    """The tests that reach a line of the unchanged program, by file and line, as numbers; `seconds` of CPU by test."""

    tests: list[str]
    seconds: list[float]
    lines: dict[str, dict[int, list[int]]]

    def by(self, change: Change) -> list[int]:
        """The tests that reach a change, the fastest first.

        If none runs its lines (of a limit, say), those that run the file, or import it.
        """
        reach = self._running(change)
        if not reach:
            reach = {test for tests in self.lines.get(change.path, {}).values() for test in tests}
            reach |= {
                number for number, test in enumerate(self.tests) if _imports(test.partition("::")[0], change.path)
            }
        return sorted(reach, key=self.seconds.__getitem__)

    def is_run(self, change: Change) -> bool:
        """Whether a test runs the changed lines."""
        return bool(self._running(change))

    def _running(self, change: Change) -> set[int]:
        of_file = self.lines.get(change.path, {})
        return {test for line in lines_that_reach(change) for test in of_file.get(line, ())}

    def limit(self, tests: Iterable[int]) -> float:
        """The seconds of CPU that these tests may take of a changed program."""
        return SECONDS + TIMES * sum(self.seconds[test] for test in tests)


class _Session:
    """The plugin: instead of running the tests it maps them, and tries each change."""

    def __init__(self, changes: Sequence[Change], at_once: int, note: Callable[[str], None]) -> None:
        self.changes, self.at_once, self.note = changes, at_once, note
        self.outcomes: list[str] = []
        self.reached: Reached | None = None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        _without_shrinking(items)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            return True
        gc.unfreeze()  # tests/conftest.py has frozen the functions, and the collector lists no frozen object
        functions = _functions_of({change.path for change in self.changes})
        clears = [thing.cache_clear for thing in gc.get_objects() if isinstance(thing, _CACHED)]
        gc.collect()
        gc.freeze()  # else the collector would look at all objects in each fork, and so copy them
        ((_, answer),) = in_forks([3600], lambda _: _map(session, self.changes, clears), 1)
        if not answer.startswith("{"):
            self.note(f"Without any change this fails: {answer}")
            return True
        self.reached = reached = Reached(**_with_numbers(json.loads(answer)))
        self.note(f"{len(reached.tests)} tests, {sum(reached.seconds):.0f} s of CPU")
        tests = [reached.by(change) for change in self.changes]

        def run(number: int) -> str:
            # what no test runs may have run at import
            if not reached.is_run(self.changes[number]) or not _changed(self.changes[number], functions):
                return AFRESH
            return first_failure(session, [session.items[test] for test in tests[number]])

        limits = [reached.limit(numbers) for numbers in tests]
        self.outcomes = [""] * len(self.changes)
        for count, (number, outcome) in enumerate(in_forks(limits, run, self.at_once), 1):
            self.outcomes[number] = outcome
            if outcome == SURVIVED:
                self.note(f"survives: {self.changes[number].place}")
            if not count % 25:
                self.note(f"{count} of {len(self.changes)}")
        return True


def in_one_process(changes: Sequence[Change], arguments: Sequence[str], at_once: int) -> tuple[list[str], Reached]:
    """Try changes in forks of one pytest. Returns for each what noticed it: SURVIVED, AFRESH, ENDED, or a test's name.

    That pytest is a fork, too, so the caller imports neither the program nor its tests.
    """

    def run(_: int) -> str:
        out = os.fdopen(os.dup(1), "w")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # of pytest's own words
        plugin = _Session(changes, at_once, lambda text: print(text, file=out, flush=True))
        pytest.main([*arguments, *OPTIONS], plugins=[plugin])
        reached = plugin.reached
        return json.dumps(reached and [plugin.outcomes, reached.tests, reached.seconds, reached.lines])

    ((_, answer),) = in_forks([10**6], run, 1, quiet=False)
    if answer in {ENDED, "null"}:
        sys.exit(1)
    outcomes, tests, seconds, lines = json.loads(answer)
    return outcomes, Reached(tests, seconds, _with_numbers({"lines": lines})["lines"])


def afresh(change: Change, tests: Sequence[str], arguments: Sequence[str]) -> str:
    """Run tests on a changed file in this process, which has not imported the program. Returns the first that fails."""
    path, source, usual = str(ROOT / change.path), change.source(), importlib.machinery.SourceFileLoader.get_code

    def get_code(loader: importlib.machinery.SourceFileLoader, name: str) -> CodeType | None:
        return compile(source, path, "exec") if loader.path == path else usual(loader, name)

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[assignment, method-assign]  # this process ends soon
    plugin = _Some({test.partition("[")[0] for test in tests}, {test: number for number, test in enumerate(tests)})
    files = [file for file, _ in Counter(test.partition("::")[0] for test in tests).most_common()]
    for some in (files[:FEW_FILES], files[FEW_FILES:]):
        code = pytest.main([*some, *arguments, *OPTIONS], plugins=[plugin]) if some else 0
        if plugin.failure or code:
            return plugin.failure or f"pytest: {code}"
    return SURVIVED


class _Some:
    """The plugin of a process that has imported the changed program: runs some test functions until one fails."""

    def __init__(self, functions: set[str], order: dict[str, int]) -> None:
        self.functions, self.order = functions, order
        self.failure = ""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid.partition("[")[0] in self.functions]
        items.sort(key=lambda item: self.order.get(item.nodeid, len(self.order)))
        _without_shrinking(items)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.failure = "import" if session.testsfailed else first_failure(session, session.items)
        return True


def first_failure(session: pytest.Session, items: Sequence[pytest.Item]) -> str:
    """Run tests until one fails. Returns its name; SURVIVED if none does."""
    for item, following in zip(items, (*items[1:], None), strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            return item.nodeid
    return SURVIVED


def _without_shrinking(items: Iterable[pytest.Item]) -> None:
    """The first failing example is enough, and none is kept for the next change."""
    for item in items:
        test: Any = getattr(item, "obj", None)
        if is_hypothesis_test(test):
            test._hypothesis_internal_use_settings = settings(
                test._hypothesis_internal_use_settings, phases=(Phase.explicit, Phase.generate), database=None
            )


def _map(session: pytest.Session, changes: Iterable[Change], clears: Sequence[Callable[[], None]]) -> str:
    """Run all tests, and note which lines of the changed files each one runs.

    A test that got an answer from a cache would not have run the lines that it depends on, so each begins with none.

    Returns JSON of Reached, or the name of a test that fails.
    """
    files = {str(ROOT / change.path): change.path for change in changes}
    measured = coverage.Coverage(data_file=None, config_file=False, include=list(files))
    measured.start()
    seconds = []
    for number, (item, following) in enumerate(zip(session.items, (*session.items[1:], None), strict=True)):
        measured.switch_context(str(number))
        for clear in clears:
            clear()
        began = sum(os.times()[:4])
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        seconds.append(round(sum(os.times()[:4]) - began, 3))
        if session.testsfailed:
            return item.nodeid
    measured.stop()
    data = measured.get_data()
    lines: dict[str, dict[int, list[int]]] = {}
    for file, path in files.items():
        lines[path] = {
            line: [int(context) for context in contexts if context]
            for line, contexts in data.contexts_by_lineno(file).items()
        }
    return json.dumps({"tests": [item.nodeid for item in session.items], "seconds": seconds, "lines": lines})


@cache
def _imports(file: str, path: str) -> bool:
    """Whether a test file has the name of a module of the program, whose path is given."""
    return path.removesuffix(".py").replace("/", ".") in (ROOT / file).read_text()


def _with_numbers(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer with its lines as numbers again, which JSON has as texts."""
    lines = {path: {int(line): tests for line, tests in of.items()} for path, of in answer["lines"].items()}
    return {**answer, "lines": lines}


def _functions_of(paths: Iterable[str]) -> dict[str, dict[tuple[str, int], list[FunctionType]]]:
    """The functions of files that this process has imported, by file, and by name and first line."""
    files = {str(ROOT / path): path for path in paths}
    functions: dict[str, dict[tuple[str, int], list[FunctionType]]] = defaultdict(lambda: defaultdict(list))
    for thing in gc.get_objects():
        if isinstance(thing, FunctionType) and (path := files.get(thing.__code__.co_filename)):
            code = thing.__code__
            functions[path][code.co_qualname, code.co_firstlineno].append(thing)
    return functions


def _changed(change: Change, functions: dict[str, dict[tuple[str, int], list[FunctionType]]]) -> bool:
    """Give the functions of this process the code of the changed file. Returns whether that makes the whole change."""
    file = str(ROOT / change.path)
    old = list(_codes(compile((ROOT / change.path).read_bytes(), file, "exec", dont_inherit=True)))
    new = list(_codes(compile(change.source(), file, "exec", dont_inherit=True)))
    if [code.co_qualname for code, _ in old] != [code.co_qualname for code, _ in new]:
        return False
    of_path = functions.get(change.path, {})
    keys = Counter((code.co_qualname, code.co_firstlineno) for code, _ in old)
    if any(keys[key] > 1 for key in of_path):
        return False  # two functions have one name and one first line
    for (before, chain), (after, _) in zip(old, new, strict=True):
        if _own(before) == _own(after):
            continue
        if not any((code.co_qualname, code.co_firstlineno) in of_path for code in chain):
            return False
    for (before, _), (after, _) in zip(old, new, strict=True):
        for function in of_path.get((before.co_qualname, before.co_firstlineno), ()):
            if len(function.__code__.co_freevars) != len(after.co_freevars):
                return False
            function.__code__ = after
    return True


def _codes(code: CodeType, around: tuple[CodeType, ...] = ()) -> Iterable[tuple[CodeType, tuple[CodeType, ...]]]:
    """Every code object of a file, with those around it, itself last."""
    chain = (*around, code)
    yield code, chain
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant, chain)


def _own(code: CodeType) -> tuple[object, ...]:
    """What a code object does itself, without the code objects within it and without its line numbers."""
    constants = [repr(constant) for constant in code.co_consts if not isinstance(constant, CodeType)]
    return code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
