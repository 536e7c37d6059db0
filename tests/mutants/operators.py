"""The rules by which a room's code is changed: every place, in every way in which a slip could have written it."""

import ast
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from tests.mutants.changes import ROOT, Change, scope_at, source_of, tree_of

COMPARED: dict[type[ast.cmpop], tuple[str, tuple[str, ...]]] = {
    ast.Lt: ("<", ("<=", ">=")),
    ast.LtE: ("<=", ("<", ">")),
    ast.Gt: (">", (">=", "<=")),
    ast.GtE: (">=", (">", "<")),
    ast.Eq: ("==", ("!=",)),
    ast.NotEq: ("!=", ("==",)),
    ast.Is: ("is", ("is not",)),
    ast.IsNot: ("is not", ("is",)),
    ast.In: ("in", ("not in",)),
    ast.NotIn: ("not in", ("in",)),
}
RECKONED: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"),
    ast.BitOr: ("|", "&"),
    ast.BitAnd: ("&", "|"),
}
TWINS = {"min": "max", "max": "min", "any": "all", "all": "any"}
# Arguments that are not changed: `strict` of `zip` only turns a slip of the program into an error.
NOT_OURS = ("strict", "init", "TYPE_CHECKING")


def changes_of(room: str) -> list[Change]:
    """Every change of a room of the exporter, in the order of its files and lines."""
    paths = sorted(path.relative_to(ROOT) for path in (ROOT / "exporter" / room).rglob("*.py"))
    return [change for path in paths for change in changes_of_file(str(path))]


def changes_of_file(path: str) -> Iterator[Change]:
    """Every change of one file. For a few that are no Python, or change nothing, `Change.is_valid` is false."""
    return _Rules(path).changes()


class _Rules:
    """Walks through a file's syntax tree. Each rule gives the node to replace, and what replaces it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.source = source_of(path)
        self.offsets = [0]
        for line in self.source.splitlines(keepends=True):
            self.offsets.append(self.offsets[-1] + len(line))

    def changes(self) -> Iterator[Change]:
        for node in _walk(tree_of(self.path)):
            yield from self._of_node(node)

    def _of_node(self, node: ast.AST) -> Iterator[Change]:
        yield from self._of_expression(node)
        yield from self._of_condition(node)
        match node:
            case ast.Return(value=ast.expr() as value) if not _is_none(value):
                yield self._replaced(value, "None")
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from self._left_out(node)

    def _of_expression(self, node: ast.AST) -> Iterator[Change]:
        match node:
            case ast.Compare():
                yield from self._comparison(node)
            case ast.BoolOp(op=op, values=values):
                yield from self._boolean(op, values)
            case ast.BinOp(left=left, op=op, right=right) if not _is_text(left) and not _is_text(right):
                yield from self._between(left, right, *RECKONED.get(type(op), ("", "")))
            case ast.AugAssign(target=left, op=op, value=right):
                yield from self._between(left, right, *RECKONED.get(type(op), ("", "")))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield self._replaced(node, f"({self._text(operand)})")
            case ast.Constant(value=value):
                if (other := _other_constant(value)) is not None:
                    yield self._replaced(node, other)
            case ast.Name(id=name) if name in TWINS:
                yield self._replaced(node, TWINS[name])

    def _of_condition(self, node: ast.AST) -> Iterator[Change]:
        match node:
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
                yield from self._condition(test)
            case ast.comprehension(ifs=tests):
                for test in tests:
                    yield from self._condition(test)
            case ast.match_case(guard=ast.expr() as test):
                yield from self._condition(test)

    def _comparison(self, node: ast.Compare) -> Iterator[Change]:
        for (left, right), op in zip(pairwise((node.left, *node.comparators)), node.ops, strict=True):
            written, others = COMPARED[type(op)]
            for other in others:
                yield from self._between(left, right, written, other)

    def _boolean(self, op: ast.boolop, values: list[ast.expr]) -> Iterator[Change]:
        """`or` in place of `and`, and the reverse, between two values; and each value left out."""
        written, other, neutral = ("and", "or", "True") if isinstance(op, ast.And) else ("or", "and", "False")
        for left, right in pairwise(values):
            yield from self._between(left, right, written, other)
        for value in values:
            if neutral == "True" or not _is_nothing(value):  # `or 0` and `or ()` go on as `or False` does
                yield self._replaced(value, neutral)

    def _condition(self, test: ast.expr) -> Iterator[Change]:
        if isinstance(test, ast.Name) and test.id in NOT_OURS:
            return
        if isinstance(test, ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.NamedExpr):
            yield self._replaced(test, f"(not ({self._text(test)}))")

    def _left_out(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Change]:
        """Leave out each statement of a function, unless a name would then be undefined."""
        statements = [node for node in _walk(function) if isinstance(node, ast.stmt)]
        assigned = Counter(
            target.id
            for statement in statements
            if isinstance(statement, ast.Assign)
            for target in statement.targets
            if isinstance(target, ast.Name)
        )
        for statement in statements:
            if _scope_of(function, statement) is not function:
                continue  # it is in an inner function, which has its own turn
            match statement:
                case (
                    ast.Expr(value=ast.Call() | ast.YieldFrom())
                    | ast.AugAssign()
                    | ast.Delete()
                    | ast.Raise()
                    | ast.Continue()
                    | ast.Break()
                    | ast.Assign(targets=[ast.Attribute() | ast.Subscript()])
                ):
                    yield self._replaced(statement, "pass")
                case ast.Assign(targets=[ast.Name(id=name)]) if assigned[name] > 1:
                    yield self._replaced(statement, "pass")

    def _between(self, left: ast.expr, right: ast.expr, written: str, other: str) -> Iterator[Change]:
        """Another operator in the place of the one that is written between two expressions."""
        begin, end = self._end(left), self._begin(right)
        at = self.source.find(written.encode(), begin, end)
        if written and at >= 0:
            yield self._change(at, at + len(written), other, (left.end_lineno or 0, right.lineno))

    def _replaced(self, node: ast.expr | ast.stmt, text: str) -> Change:
        return self._change(self._begin(node), self._end(node), text, (node.lineno, node.end_lineno or 0))

    def _change(self, begin: int, end: int, text: str, lines: tuple[int, int]) -> Change:
        return Change(self.path, begin, end, text.encode(), lines, scope_at(self.path, lines[0]))

    def _text(self, node: ast.expr) -> str:
        return self.source[self._begin(node) : self._end(node)].decode()

    def _begin(self, node: ast.expr | ast.stmt) -> int:
        return self.offsets[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.stmt) -> int:
        return self.offsets[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """A node and all below it, but for types, decorators and f-strings, whose places Python 3.11 does not know."""
    yield node
    for field, value in ast.iter_fields(node):
        if field in {"annotation", "returns", "decorator_list", "bases", "type_params"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            is_ours = not isinstance(child, ast.JoinedStr) and not (
                isinstance(child, ast.keyword) and child.arg in NOT_OURS
            )
            if isinstance(child, ast.AST) and is_ours:
                yield from _walk(child)


def _scope_of(function: ast.AST, statement: ast.stmt) -> ast.AST | None:
    """The innermost function that holds a statement."""
    inner = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.lineno <= statement.lineno
        and (statement.end_lineno or 0) <= (node.end_lineno or 0)
        and node is not statement
    ]
    return max(inner, key=lambda node: node.lineno, default=None)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_nothing(node: ast.expr) -> bool:
    """Whether it is written as a false value: 0, (), an empty text."""
    if isinstance(node, ast.Constant):
        return not node.value
    return isinstance(node, ast.Tuple | ast.List) and not node.elts


def _other_constant(value: object) -> str | None:
    match value:
        case bool():
            return str(not value)
        case int():
            return str(value + 1)
        case float():
            return str(value * 2 or 1.0)
    return None
