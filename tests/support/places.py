"""Where the tests find what they read: the checkout, recorded answers and pages, goldens."""

from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
DATA = ROOT / "tests" / "data"
GOLDEN = ROOT / "tests" / "golden"
